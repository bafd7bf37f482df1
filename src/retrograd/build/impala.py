"""IMPALA: the workers of A3C, which here only play, and a learner of V-trace in the first process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from retrograd.agents.impala import ImpalaAgent
from retrograd.build import policy
from retrograd.build.hardware import choose_products, place
from retrograd.build.workers import (
    check_env,
    check_normalizers,
    slots_per_worker,
    worker_builder,
    worker_config,
)
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import EnvSpec
from retrograd.distributed.actors import Actor, actors_and_learner
from retrograd.distributed.slots import SlotRollouts, Slots
from retrograd.distributed.workers import Wires, WorkerParts
from retrograd.networks.policy import make_actor_critic
from retrograd.training.loop import Loop
from retrograd.training.run import Run

if TYPE_CHECKING:
    from retrograd.build.builder import Builder

UPDATE_COLUMNS = (
    *(name for name in policy.UPDATE_COLUMNS if name != "clip_fraction"),
    "rho_mean",
    "lag_updates",
)


def make_agent(builder: Builder, spec: EnvSpec) -> Agent:
    """The agent that learns, is judged and saved."""
    check_normalizers(builder)
    policy.check_policy(builder, spec)
    agent = builder.config["agent"]
    torch.manual_seed(builder.streams.integer("network"))
    network = _network(builder, spec)
    place(builder, network)
    return ImpalaAgent(
        network,
        policy.make_learner(builder, network, spec),
        policy.make_sampling(builder),
        gamma=agent["gamma"],
        rho_clip=agent["rho_clip"],
        c_clip=agent["c_clip"],
    )


def make_loop(builder: Builder, agent: Agent, envs: VecEnv, run: Run) -> Loop:
    assert isinstance(agent, ImpalaAgent)
    check_env(builder)

    def begin() -> Iterator[None]:
        yield from actors_and_learner(
            run,
            agent,
            partial(make_slots, builder, envs.spec),
            partial(make_worker, worker_config(builder, run), builder.env),
            rollouts_per_update=builder.config["agent"]["rollouts_per_update"],
        )

    return Loop(begin)


def make_slots(builder: Builder, spec: EnvSpec, context: Any) -> list[Slots]:
    agent, num_envs = builder.config["agent"], builder.config["training"]["num_envs"]
    count = slots_per_worker(agent)
    return [Slots(spec, agent["rollout_steps"], num_envs, count, context) for _ in range(agent["workers"])]


def make_worker(config_yaml: str, env: Any, slots: list[Slots], wires: Wires) -> WorkerParts:
    """In the worker's own process: environments and random streams of its own, by its number."""
    builder = worker_builder(config_yaml, env, wires.worker)
    envs = builder.environments()
    own = slots[wires.worker]
    network = _network(builder, envs.spec)
    choose_products(builder, network)
    actor = Actor(network, policy.make_sampling(builder), wires, own)
    return WorkerParts(actor, envs, SlotRollouts(own), own.rollout_steps, value_of=lambda obs: obs)


def _network(builder: Builder, spec: EnvSpec) -> Any:
    return make_actor_critic(
        spec.obs,
        spec.action,
        shared=builder.config["agent"]["network"] == "shared",
        channels_last=builder.config["hardware"]["channels_last"],
        encoder_kind=builder.config["agent"]["encoder"],
    )
