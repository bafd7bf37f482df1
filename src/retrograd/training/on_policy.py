"""The on-policy loop: play a rollout, learn from it, forget it.

The run's plan pauses the overlap at each rollout's edge (``sync_every_steps``), so that no step of the next rollout is
played with the weights of the last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import Step
from retrograd.training.collect import collect
from retrograd.training.player import Player
from retrograd.training.run import Run


class Rollouts(Protocol):
    """Fills with steps; when full, gives them as one batch."""

    @property
    def full(self) -> bool: ...
    def add(self, step: Step) -> None: ...
    def finish(self, value_of: Callable[..., Any]) -> Any: ...


def on_policy(
    agent: Agent,
    envs: VecEnv,
    rollouts: Rollouts,
    run: Run,
    *,
    value_of: Callable[..., Any],
    player: Player | None = None,
) -> Iterator[None]:
    """Yields after each vector step has been remembered, and the rollout it completed learned from.

    ``value_of`` tells what the successors are worth that no step of the rollout remembers.
    """
    for step in collect(agent, envs, run, player):
        run.advance(envs.num_envs)
        rollouts.add(step)
        run.timer.lap("sample")
        if rollouts.full:
            batch = rollouts.finish(value_of)
            run.timer.lap("sample")
            update = agent.update(batch, step=run.step)
            run.timer.lap("update")
            run.learned(update)
        yield
