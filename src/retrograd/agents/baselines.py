"""Agents that do not learn: the floor of every comparison, and a check of the whole pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.protocols import Agent
from retrograd.core.types import ContinuousActions, Decision, DiscreteActions, Obs, Update


def _rows(obs: Obs) -> int:
    return len(next(iter(obs.values()))) if isinstance(obs, dict) else len(obs)


class RandomAgent(Agent):
    """Uniform over all actions; the same in evaluation."""

    def __init__(self, actions: DiscreteActions | ContinuousActions, rng: np.random.Generator) -> None:
        self.actions = actions
        self.rng = rng
        self.parts = {}

    def act(self, obs: Obs, state: Any = None, *, step: int, explore: bool) -> Decision:
        num_envs = _rows(obs)
        if isinstance(self.actions, DiscreteActions):
            return Decision(self.rng.integers(self.actions.n, size=num_envs))
        low, high = self.actions.low, self.actions.high
        return Decision(self.rng.uniform(low, high, (num_envs, *low.shape)).astype(np.float32))

    def update(self, batch: Any, *, step: int) -> Update:
        return Update({})


class ConstantAgent(Agent):
    """One action for ever."""

    def __init__(self, action: Any) -> None:
        self.action = np.asarray(action)
        self.parts = {}

    def act(self, obs: Obs, state: Any = None, *, step: int, explore: bool) -> Decision:
        return Decision(np.repeat(self.action[None], _rows(obs), axis=0))

    def update(self, batch: Any, *, step: int) -> Update:
        return Update({})
