"""Scores and lengths of full games, whatever the learner is shown."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.types import Array, Episode


class EpisodeMeter:
    """Adds up unclipped rewards and steps of each row until its game is over."""

    def __init__(self, num_envs: int) -> None:
        self.score = np.zeros(num_envs, np.float64)
        self.length_steps = np.zeros(num_envs, np.int64)

    def add(self, reward: Array) -> None:
        self.score += reward
        self.length_steps += 1

    def finish(self, ended: Array, frames: Array) -> tuple[Episode, ...]:
        """The games that ended, by row; their counts begin again. ``frames`` [N] is each game's length."""
        if not ended.any():
            return ()
        episodes = tuple(
            Episode(int(row), float(self.score[row]), int(self.length_steps[row]), int(frames[row]))
            for row in np.flatnonzero(ended)
        )
        self.clear(ended)
        return episodes

    def clear(self, rows: Array) -> None:
        self.score[rows] = 0.0
        self.length_steps[rows] = 0

    def state_dict(self) -> dict[str, Any]:
        return {"score": self.score.copy(), "length_steps": self.length_steps.copy()}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.score = np.array(state["score"], np.float64)
        self.length_steps = np.array(state["length_steps"], np.int64)
