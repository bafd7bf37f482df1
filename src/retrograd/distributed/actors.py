"""Actors and a learner: the workers only play, with weights that may be old, and the first process learns.

A worker sends each rollout through shared memory and takes the newest weights before the next. When all its slots wait
for the learner it waits, too, so that weights can lag behind by no more than the slots hold.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import multiprocessing

from retrograd.agents.impala import ImpalaAgent
from retrograd.agents.policy import Sampling, decide
from retrograd.core.protocols import Agent
from retrograd.core.signals import signals_held
from retrograd.core.types import Decision, Episode, Obs, Update
from retrograd.distributed.shared import SharedWeights
from retrograd.distributed.slots import Filled, Slots, Successor, gather
from retrograd.distributed.workers import POLL_SECONDS, Team, Wires, WorkerParts
from retrograd.networks.policy import ActorCritic
from retrograd.training.run import Run

CPU = torch.device("cpu")


class Actor(Agent):
    """What a worker plays with: its update is to send the rollout and to take the newest weights."""

    def __init__(self, network: ActorCritic, sampling: Sampling, wires: Wires, slots: Slots) -> None:
        self.network, self.sampling, self.wires, self.slots = network, sampling, wires, slots
        self.parts = {"network": network}
        self._take_weights()

    def act(self, obs: Obs, state: Any = None, *, step: int, explore: bool) -> Decision:
        return decide(self.network, self.sampling, obs, device=CPU, explore=explore)

    def update(self, batch: tuple[int, tuple[Successor, ...]], *, step: int) -> Update:
        slot, successors = batch
        self.wires.reports.send(Filled(self.wires.worker, slot, self.version, successors))
        self._take_weights()
        return Update({})

    def _take_weights(self) -> None:
        """Once there is a slot to fill; a worker that waits still hears that the run is over, or that nobody learns."""
        while not self.slots.free.acquire(timeout=POLL_SECONDS):
            if self.wires.stopping():
                return
            if self.wires.orphaned():
                sys.exit()
        self.version = self.wires.shared.copy_to(self.network)


def actors_and_learner(
    run: Run,
    agent: ImpalaAgent,
    make_slots: Callable[[Any], list[Slots]],
    make_parts: Callable[[list[Slots], Wires], WorkerParts],
    *,
    rollouts_per_update: int,
) -> Iterator[None]:
    """Yields after each update, one for ``rollouts_per_update`` rollouts in the order they came."""
    context = multiprocessing.get_context("spawn")  # a forked torch may hang on locks of threads that are not there
    with signals_held():  # what is shared is watched over by a process of its own
        shared, slots = SharedWeights(agent.network, context, updates=agent.updates), make_slots(context)
    waiting: list[Filled] = []
    team = Team(partial(make_parts, slots), len(slots), shared, context)
    try:
        while not run.spent(run.step) and not run.stop_requested:
            for report in team.reports(run):
                if isinstance(report, Episode):
                    run.played([report], run.step)
                else:
                    waiting.append(report)
            while len(waiting) >= rollouts_per_update and not run.spent(run.step):
                chosen, waiting = waiting[:rollouts_per_update], waiting[rollouts_per_update:]
                run.learned(_learn(run, agent, chosen, slots))
                shared.publish(agent.network, agent.updates)
                yield
    finally:
        team.stop()


def _learn(run: Run, agent: ImpalaAgent, chosen: list[Filled], slots: list[Slots]) -> Update:
    batch = gather(chosen, slots)
    for each in chosen:
        slots[each.worker].free.release()  # it was copied: the worker plays on while we learn
    lag_updates = float(np.mean([agent.updates - each.version for each in chosen]))
    run.advance(batch.reward.size)
    update = agent.update(batch, step=run.step)
    return Update({**update.metrics, "lag_updates": lag_updates})
