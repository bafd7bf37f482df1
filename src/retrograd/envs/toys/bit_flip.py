"""Bit flip: reach a goal pattern by flipping one bit at a time; hopeless without hindsight beyond 12 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Env, spaces

from retrograd.core.types import Array

Observation = dict[str, Array]


class BitFlip(Env[Any, Any]):
    """Reward -1 for every step that does not reach the goal, 0 for the one that does; at most ``bits`` steps."""

    def __init__(self, bits: int = 8) -> None:
        self.bits = bits
        self.action_space = spaces.Discrete(bits)
        pattern = spaces.Box(0.0, 1.0, (bits,), np.float32)
        self.observation_space = spaces.Dict(
            {"observation": pattern, "achieved_goal": pattern, "desired_goal": pattern}
        )
        self._state = np.zeros(bits, np.float32)
        self._goal = np.zeros(bits, np.float32)
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._goal = self.np_random.integers(0, 2, (2, self.bits)).astype(np.float32)
        if np.array_equal(self._state, self._goal):
            self._goal[0] = 1.0 - self._goal[0]
        self._time = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        self._state[action] = 1.0 - self._state[action]
        self._time += 1
        reward = float(self.compute_reward(self._state, self._goal))
        reached = reward == 0.0
        return self._observe(), reward, reached, not reached and self._time >= self.bits, {}

    def compute_reward(self, achieved: Array, desired: Array) -> Array:
        """[...] rewards of any number of pairs [..., bits]: what hindsight relabels with."""
        reached: Array = (achieved == desired).all(axis=-1)
        return np.asarray(np.where(reached, 0.0, -1.0), np.float32)

    def _observe(self) -> Observation:
        state, goal = self._state.copy(), self._goal.copy()
        return {"observation": state, "achieved_goal": state.copy(), "desired_goal": goal}
