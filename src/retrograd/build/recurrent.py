"""Recurrent PPO: as PPO, with a memory in the network and its states in the rollouts."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from retrograd.build.halves import make_player
from retrograd.build.hardware import place
from retrograd.build.policy import UPDATE_COLUMNS, check_policy, make_learner, make_sampling
from retrograd.contrib.recurrent_ppo import RecurrentPolicyAgent, StateRollouts
from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import EnvSpec
from retrograd.networks.policy import make_recurrent_actor_critic
from retrograd.replay import RecurrentRolloutBuffer
from retrograd.training.loop import Loop
from retrograd.training.on_policy import on_policy
from retrograd.training.run import Run

if TYPE_CHECKING:
    from retrograd.build.builder import Builder

__all__ = ["UPDATE_COLUMNS", "make_agent", "make_loop"]


def make_agent(builder: Builder, spec: EnvSpec) -> Agent:
    agent = builder.config["agent"]
    check_policy(builder, spec)
    sequence, rollout = agent["sequence_steps"], agent["rollout_steps"]
    if sequence is not None and sequence > rollout:
        raise UsageError(
            f"agent.sequence_steps={sequence} must not exceed agent.rollout_steps={rollout}: no run is longer"
        )
    torch.manual_seed(builder.streams.integer("network"))
    network = make_recurrent_actor_critic(
        spec.obs,
        spec.action,
        cell=agent["cell"],
        hidden_size=agent["hidden_size"],
        channels_last=builder.config["hardware"]["channels_last"],
        encoder_kind=agent["encoder"],
    )
    place(builder, network)
    return RecurrentPolicyAgent(
        network,
        make_learner(builder, network, spec),
        make_sampling(builder),
        minibatches=agent["minibatches"],
        minibatch_rng=builder.streams["minibatches"],
        sequence_steps=sequence,
    )


def make_loop(builder: Builder, agent: Agent, envs: VecEnv, run: Run) -> Loop:
    assert isinstance(agent, RecurrentPolicyAgent)
    values = builder.config["agent"]
    buffer = RecurrentRolloutBuffer(
        values["rollout_steps"],
        envs.num_envs,
        gamma=values["gamma"],
        gae_lambda=values["gae_lambda"],
        **builder.staging(),
    )
    rollouts, player = StateRollouts(buffer), make_player(agent, envs, run)
    begin = partial(on_policy, agent, envs, rollouts, run, value_of=agent.values, player=player)
    return Loop(begin, player=player, parts={"rollouts": rollouts})
