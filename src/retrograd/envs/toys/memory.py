"""Tasks that cannot be solved without remembering."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, spaces

from retrograd.core.types import Array


class MemoryChain(Env[Any, Any]):
    """A bit is shown at first and asked for ``length`` steps later: +1 if right, -1 if wrong.

    Observations are (context as ±1, time left as a fraction, query flag). Without memory the expected
    return is exactly 0.
    """

    def __init__(self, length: int = 10) -> None:
        self.length = length
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self._context = 0
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._context, self._time = int(self.np_random.integers(2)), 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        asked = self._time == self.length
        reward = (1.0 if action == self._context else -1.0) if asked else 0.0
        self._time += 1
        return self._observe(), reward, asked, False, {}

    def _observe(self) -> Array:
        context = (2.0 * self._context - 1.0) if self._time == 0 else 0.0
        left = max(self.length - self._time, 0) / self.length
        return np.array([context, left, self._time == self.length], np.float32)


class CartPoleNoVel(gymnasium.ObservationWrapper):
    """CartPole-v1 that shows positions only: a policy has to work out the velocities from the past."""

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(gymnasium.make("CartPole-v1", render_mode=render_mode))
        whole = self.env.observation_space
        assert isinstance(whole, spaces.Box)
        self.observation_space = spaces.Box(whole.low[[0, 2]], whole.high[[0, 2]], (2,), np.float32)

    def observation(self, observation: Array) -> Array:
        return observation[[0, 2]]
