"""Counter: every mistake at an episode's edge shows. Chain: the nearest reward is not the best one."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Env, spaces

from retrograd.core.types import Array


class Counter(Env[Any, Any]):
    """The observation is the time; episodes of ``length`` steps end by turns in termination and truncation.

    Times run on across episodes with a gap of 100, so a successor other than time + 1 is a mixed-up episode.
    """

    def __init__(self, length: int = 4) -> None:
        self.length = length
        self.action_space = spaces.Discrete(2)
        self.observation_space = spaces.Box(0.0, np.inf, (1,), np.float32)
        self._episode = -1
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._episode = 0 if seed is not None else self._episode + 1
        self._time = 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._time += 1
        ended = self._time == self.length
        terminates = self._episode % 2 == 0
        return self._observe(), 1.0, ended and terminates, ended and not terminates, {}

    def _observe(self) -> Array:
        return np.array([100.0 * self._episode + self._time], np.float32)


class Chain(Env[Any, Any]):
    """Six states in a row, start at the second; the left end pays 0.01, the right end 1, both end the episode.

    With discount γ the value of going right from state s is γ^(4 - s), known exactly.
    """

    def __init__(self, states: int = 6, small_reward: float = 0.01, max_steps: int = 50) -> None:
        self.states, self.small_reward, self.max_steps = states, small_reward, max_steps
        self.action_space = spaces.Discrete(2)  # left, right
        self.observation_space = spaces.Box(0.0, 1.0, (states,), np.float32)
        self._state = 1
        self._time = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._state, self._time = 1, 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._state += 1 if action == 1 else -1
        self._time += 1
        right = self._state == self.states - 1
        ended = right or self._state == 0
        reward = 1.0 if right else (self.small_reward if ended else 0.0)
        return self._observe(), reward, ended, not ended and self._time >= self.max_steps, {}

    def _observe(self) -> Array:
        observation = np.zeros(self.states, np.float32)
        observation[self._state] = 1.0
        return observation
