"""Whole games, kept as they were played: for learners that want an episode at a time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.types import Array, Obs, Step
from retrograd.replay.ring import ONLY, obs_arrays


@dataclass(frozen=True, slots=True)
class StoredEpisode:
    """One finished game."""

    row: int
    obs: Obs  # [T + 1, ...] the last one is the true final observation
    action: Array  # [T] or [T, action_dim]
    reward: Array  # [T] float32
    terminated: Array  # [T] bool: also where only a life was lost
    truncated: Array  # [T] bool
    extras: dict[str, Array]  # [T, ...]

    def __len__(self) -> int:
        return len(self.reward)


class EpisodeBuffer:
    """Collects the steps of every row and hands out finished games, oldest first; drops the oldest when full."""

    def __init__(self, capacity_episodes: int, num_envs: int = 1) -> None:
        if capacity_episodes < 1:
            raise UsageError(f"capacity_episodes is {capacity_episodes}: must be at least 1")
        if num_envs < 1:
            raise UsageError(f"num_envs is {num_envs}: must be at least 1")
        self.capacity_episodes, self.num_envs = capacity_episodes, num_envs
        self.clear()

    def clear(self) -> None:
        """Forget all games, the unfinished ones too."""
        self._finished: deque[StoredEpisode] = deque(maxlen=self.capacity_episodes)
        self._playing: list[list[tuple[Step, int]]] = [[] for _ in range(self.num_envs)]

    def add_step(self, step: Step) -> None:
        """Remember one step of every row. Keeps the step's arrays, so they must not be written to afterwards."""
        if len(step.reward) != self.num_envs:
            raise UsageError(f"the step has {len(step.reward)} rows: must be {self.num_envs}")
        for row, steps in enumerate(self._playing):
            steps.append((step, row))
        for row in np.flatnonzero(step.reset).tolist():
            self._finished.append(_assemble(self._playing[row]))
            self._playing[row] = []

    def get_episode(self, index: int = -1) -> StoredEpisode:
        """A finished game: 0 is the oldest kept, -1 the newest."""
        if not -len(self._finished) <= index < len(self._finished):
            raise UsageError(f"episode {index} is not there: {len(self._finished)} finished games are kept")
        return self._finished[index]

    def sample(self, count: int, rng: np.random.Generator) -> list[StoredEpisode]:
        """Games drawn uniformly, with replacement."""
        if not self._finished:
            raise UsageError("no game has finished yet: there is nothing to sample")
        return [self._finished[i] for i in rng.integers(len(self._finished), size=count).tolist()]

    def __len__(self) -> int:
        """Finished games."""
        return len(self._finished)

    def check_valid(self) -> None:
        """Raise AssertionError where an episode contradicts itself."""
        for episode in self._finished:
            length = len(episode)
            assert length > 0
            assert all(len(array) == length + 1 for array in obs_arrays(episode.obs).values())
            assert len(episode.action) == len(episode.terminated) == len(episode.truncated) == length
        assert all(not step.reset[row] for steps in self._playing for step, row in steps)


def _assemble(steps: list[tuple[Step, int]]) -> StoredEpisode:
    final, row = steps[-1]

    def column(name: str) -> Array:
        return np.stack([getattr(step, name)[row] for step, _ in steps])

    parts: dict[str, Any] = {
        key: np.stack([obs_arrays(step.obs)[key][row] for step, _ in steps] + [last[row]])
        for key, last in obs_arrays(final.next_obs).items()
    }
    return StoredEpisode(
        row=row,
        obs=parts[ONLY] if parts.keys() == {ONLY} else parts,
        action=column("action"),
        reward=column("reward").astype(np.float32),
        terminated=column("terminated"),
        truncated=column("truncated"),
        extras={name: np.stack([step.extras[name][row] for step, _ in steps]) for name in final.extras},
    )
