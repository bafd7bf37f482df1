"""A3C: as A2C, with workers that learn on shared weights."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from torch import nn

from retrograd.agents.policy import PolicyAgent, PolicyLearner
from retrograd.build import policy
from retrograd.build.hardware import choose_products
from retrograd.build.policy import UPDATE_COLUMNS
from retrograd.build.workers import check_env, check_normalizers, worker_builder, worker_config
from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import EnvSpec
from retrograd.distributed.shared import SharedLearner, SharedParameters
from retrograd.distributed.workers import Wires, WorkerParts, asynchronous
from retrograd.networks.optimizers import TensorFlowRMSprop
from retrograd.networks.policy import make_actor_critic
from retrograd.replay import RolloutBuffer
from retrograd.training.loop import Loop
from retrograd.training.run import Run

if TYPE_CHECKING:
    from retrograd.build.builder import Builder

__all__ = ["UPDATE_COLUMNS", "make_agent", "make_loop"]


def make_agent(builder: Builder, spec: EnvSpec) -> Agent:
    """The agent that is judged and saved; its optimizer keeps the statistics the workers share."""
    preset = builder.config["preset"]
    if preset["optimizer"] != "tf_rmsprop":
        raise UsageError(
            f"preset.optimizer={preset['optimizer']} cannot be shared by workers; agent=a3c needs tf_rmsprop"
        )
    if builder.device().type != "cpu":
        raise UsageError(f"agent=a3c shares weights in memory: hardware.device={builder.device()} must be cpu")
    check_normalizers(builder)
    return policy.make_agent(builder, spec)


def make_loop(builder: Builder, agent: Agent, envs: VecEnv, run: Run) -> Loop:
    assert isinstance(agent, PolicyAgent)
    check_env(builder)

    def begin() -> Iterator[None]:
        yield from asynchronous(
            run,
            partial(share, _learner_of(agent), agent.network),
            partial(take_over, _learner_of(agent), agent.network),
            partial(make_worker, worker_config(builder, run), builder.env),
            workers=builder.config["agent"]["workers"],
        )

    return Loop(begin)


def share(learner: PolicyLearner, network: nn.Module, context: Any) -> SharedParameters:
    """The weights and statistics of this moment, for workers to go on from."""
    assert isinstance(learner.optimizer, TensorFlowRMSprop)
    return SharedParameters(network, learner.optimizer, context, updates=learner.updates)


def take_over(learner: PolicyLearner, network: nn.Module, shared: SharedParameters) -> None:
    """What the workers have reached, for evaluation and checkpoints; the statistics are shared anyway."""
    shared.copy_to(network)
    learner.updates = int(shared.updates.value)


def _learner_of(agent: PolicyAgent) -> PolicyLearner:
    assert isinstance(agent.learner, PolicyLearner)
    return agent.learner


def make_worker(config_yaml: str, env: Any, wires: Wires) -> WorkerParts:
    """In the worker's own process: environments and random streams of its own, by its number."""
    builder = worker_builder(config_yaml, env, wires.worker)
    config = builder.config
    envs = builder.environments()
    agent, preset = config["agent"], config["preset"]
    network = make_actor_critic(
        envs.spec.obs,
        envs.spec.action,
        shared=agent["network"] == "shared",
        channels_last=config["hardware"]["channels_last"],
        encoder_kind=agent["encoder"],
    )
    choose_products(builder, network)
    learner = SharedLearner(
        network,
        policy.make_loss(builder, envs.spec),
        wires.shared,
        lr=builder.over_run(envs.spec, preset["lr"], preset["lr_end"]),
        max_grad_norm=agent["max_grad_norm"],
        global_step=wires.global_step,
    )
    player = PolicyAgent(
        network,
        learner,
        policy.make_sampling(builder),
        minibatches=1,
        minibatch_rng=builder.streams["minibatches"],
    )
    rollouts = RolloutBuffer(
        agent["rollout_steps"], envs.num_envs, gamma=agent["gamma"], gae_lambda=agent["gae_lambda"], device="cpu"
    )
    return WorkerParts(player, envs, rollouts, agent["rollout_steps"], value_of=player.values)
