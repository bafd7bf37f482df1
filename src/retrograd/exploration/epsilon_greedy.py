"""ε-greedy, decided for every row by itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from retrograd.core.schedules import Schedule
from retrograd.core.types import Array


class EpsilonGreedy:
    """With probability ε a row takes a uniformly random action, else the greedy one."""

    def __init__(self, epsilon: Schedule, num_actions: int, rng: np.random.Generator) -> None:
        self.epsilon = epsilon
        self.num_actions = num_actions
        self.rng = rng

    def choose(self, greedy: Callable[[], Array], num_envs: int, *, step: int) -> Array:
        """Actions [N]; ``greedy`` is asked only when some row needs it, so a random warm-up costs no network."""
        epsilon = self.epsilon(step)
        explores = self.rng.random(num_envs) < epsilon
        random = self.rng.integers(self.num_actions, size=num_envs)
        return random if explores.all() else np.where(explores, random, greedy())
