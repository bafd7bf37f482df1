"""One run's playing, and what lies between two of its steps: the step not yet learned from, memories of games.

Whoever wants to save the run calls ``settle`` first. Nothing is in flight then, the step received last is kept here,
and a run that goes on from there makes the same decisions in the same order as one that was never saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import Array, Episode, Step
from retrograd.training.rows import Played, Rows, load_step, step_dict
from retrograd.training.run import Run


class Player:
    """Sends actions and receives outcomes; ``pending`` is received and not yet handed to the learner.

    ``groups`` are the environments whose rows, behind one another, make a step; all of ``envs`` at once unless said.
    """

    def __init__(self, agent: Agent, envs: VecEnv, run: Run, groups: Sequence[VecEnv] = ()) -> None:
        self.envs, self.run = envs, run
        self.pending: Step | None = None
        self.acted = 0  # steps chosen, learned from or not
        self._groups = [Rows(agent, group, run) for group in groups or (envs,)]

    def begin(self) -> None:
        """Go on from where the environments stand."""
        self.settle()
        for group in self._groups:
            group.begin()
        self.acted = self.run.step + (self.envs.num_envs if self.pending is not None else 0)

    def take(self) -> Step | None:
        """The step that waits for the learner, once."""
        step, self.pending = self.pending, None
        return step

    def send(self) -> None:
        for group in self._groups:
            group.send(self.acted)

    def receive(self) -> None:
        """The outcome of what was sent, as the loop goes on."""
        self.settle()

    def settle(self) -> None:
        """Receive what is in flight; the outcome of rows that are ahead is kept until the others' is there."""
        acted = self.acted + self.envs.num_envs
        for group in self._groups:
            group.receive(acted)
        if self._groups[-1].played is not None:
            self._join([group.take() for group in self._groups])

    def _join(self, parts: Sequence[Played]) -> None:
        self.acted += self.envs.num_envs
        before, games = 0, []
        for part in parts:
            games += [Episode(**{**asdict(game), "row": game.row + before}) for game in part.episodes]
            before += len(part.step.reward)
        self.run.played(games, self.acted)
        self.pending = parts[0].step if len(parts) == 1 else _joined([part.step for part in parts])

    def state_dict(self) -> dict[str, Any]:
        pending = None if self.pending is None else step_dict(self.pending)
        return {"groups": [group.state_dict() for group in self._groups], "pending": pending}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Call it before the loop begins; the environments are restored by themselves."""
        self.pending = None if state["pending"] is None else load_step(state["pending"])
        for group, saved in zip(self._groups, state["groups"], strict=True):
            group.load_state_dict(saved)


def _joined(steps: Sequence[Step]) -> Step:
    return Step(**{field.name: _behind([getattr(step, field.name) for step in steps]) for field in fields(Step)})


def _behind(parts: list[Any]) -> Any:
    """Rows behind one another: arrays, or arrays by name."""
    if isinstance(parts[0], dict):
        return {name: _behind([part[name] for part in parts]) for name in parts[0]}
    joined: Array = np.concatenate(parts)
    return joined
