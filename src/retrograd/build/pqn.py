"""PQN: a normalized Q network, rollouts and the on-policy loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from retrograd.agents.baselines import NullLearner
from retrograd.agents.pqn import PQNAgent
from retrograd.build.hardware import make_scaler, place
from retrograd.build.policy import make_rollout_loop
from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.schedules import Constant, Linear
from retrograd.core.types import DiscreteActions, EnvSpec
from retrograd.exploration import EpsilonGreedy
from retrograd.networks.q_network import make_q_network
from retrograd.training.loop import Loop
from retrograd.training.run import Run

if TYPE_CHECKING:
    from retrograd.build.builder import Builder


def make_agent(builder: Builder, spec: EnvSpec) -> Agent:
    config = builder.config
    agent, preset = config["agent"], config["preset"]
    if not isinstance(spec.action, DiscreteActions):
        raise UsageError(f"agent={agent['name']} needs discrete actions; {spec.name} has continuous ones")
    rollout = agent["rollout_steps"] * config["training"]["num_envs"]
    if agent["minibatches"] > rollout:
        raise UsageError(f"agent.minibatches={agent['minibatches']} must not exceed the {rollout} steps of a rollout")
    torch.manual_seed(builder.streams.integer("network"))
    network = make_q_network(
        spec.obs,
        spec.action.n,
        network=agent["network"],
        channels_last=config["hardware"]["channels_last"],
        layer_norm=agent["layer_norm"] and agent["network"] == "dueling",  # whose hidden layers are in the head
        encoder={"layer_norm": agent["layer_norm"]},
    )
    place(builder, network)
    decay_steps = preset["epsilon_decay_frames"] // spec.frames_per_step
    epsilon = Linear(preset["epsilon_start"], preset["epsilon_end"], decay_steps)
    explorer = partial(EpsilonGreedy, num_actions=spec.action.n)
    return PQNAgent(
        network,
        torch.optim.RAdam(network.parameters(), lr=preset["lr"], eps=preset["adam_eps"]),
        explorer=explorer(epsilon, rng=builder.streams["exploration"]),
        eval_explorer=explorer(Constant(config["eval"]["epsilon"]), rng=builder.streams["evaluation"]),
        lr=builder.over_run(spec, preset["lr"], preset["lr_end"]),
        epochs=agent["epochs"],
        minibatches=agent["minibatches"],
        max_grad_norm=agent["max_grad_norm"],
        minibatch_rng=builder.streams["minibatches"],
        scaler=make_scaler(builder),
    )


def make_loop(builder: Builder, agent: Agent, envs: VecEnv, run: Run) -> Loop:
    assert isinstance(agent, PQNAgent | NullLearner)
    return make_rollout_loop(builder, agent, envs, run, returns_lambda=builder.config["agent"]["q_lambda"])
