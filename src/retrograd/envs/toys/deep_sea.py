"""Deep sea: only one of 2^N action sequences finds the treasure; undirected exploration does not."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Env, spaces

from retrograd.core.types import Array


class DeepSea(Env[Any, Any]):
    """N × N cells, one row deeper each step. Right costs 0.01 / N; all the way right pays 1, so 0.99 in all.

    Which action means right is drawn per cell from ``mapping_seed`` and never changes, so that no
    constant policy dives by chance.
    """

    def __init__(self, size: int = 8, mapping_seed: int = 0) -> None:
        self.size = size
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(0.0, 1.0, (size * size,), np.float32)
        self.right_action = np.random.default_rng(mapping_seed).integers(0, 2, (size, size))
        self._row = self._column = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._row = self._column = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        right = action == self.right_action[self._row, self._column]
        reward = -0.01 / self.size if right else 0.0
        if right and self._column == self.size - 1:
            reward += 1.0
        self._column = min(self._column + 1, self.size - 1) if right else max(self._column - 1, 0)
        self._row += 1
        return self._observe(), reward, self._row == self.size, False, {}

    def _observe(self) -> Array:
        observation = np.zeros((self.size, self.size), np.float32)
        if self._row < self.size:
            observation[self._row, self._column] = 1.0
        return observation.reshape(-1)
