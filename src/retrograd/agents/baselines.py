"""Agents that do not learn: the floor of every comparison, and a check of the whole pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.protocols import Agent
from retrograd.core.types import Array, ContinuousActions, Decision, DiscreteActions, Obs, Transitions, Update


def _rows(obs: Obs) -> int:
    return len(next(iter(obs.values()))) if isinstance(obs, dict) else len(obs)


def _draw(actions: ContinuousActions, rows: int, rng: np.random.Generator) -> Array:
    """Uniform between bounds; beyond a bound that is missing exponential, without any normal, as Gymnasium draws."""
    low, high, shape = actions.low, actions.high, (rows, *actions.low.shape)
    if np.isfinite(low).all() and np.isfinite(high).all():
        return rng.uniform(low, high, shape)
    from_below, from_above = np.isfinite(low), np.isfinite(high)
    floor, ceiling = np.where(from_below, low, 0.0), np.where(from_above, high, 0.0)
    between = rng.uniform(np.minimum(floor, ceiling), np.maximum(floor, ceiling), shape)
    tail, free = rng.exponential(size=shape), rng.normal(size=shape)
    one_sided = np.where(from_below, floor + tail, ceiling - tail)
    return np.where(from_below & from_above, between, np.where(from_below | from_above, one_sided, free))


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
        return Decision(_draw(self.actions, num_envs, self.rng).astype(np.float32))

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


class NullLearner(Agent):
    """Plays at random and learns nothing, in the loop of an agent that would: what is left is the framework's own cost.

    It has no network. Replays get back the weights of a batch as its priorities, rollouts zeros where they ask for
    values and log-probabilities, so that all the work around a learner is done.
    """

    def __init__(self, actions: DiscreteActions | ContinuousActions, rng: np.random.Generator) -> None:
        self._random = RandomAgent(actions, rng)
        self.updates = 0
        self.parts = {"counters": self}

    def act(self, obs: Obs, state: Any = None, *, step: int, explore: bool) -> Decision:
        action = self._random.act(obs, step=step, explore=explore).action
        if not explore:
            return Decision(action)
        zeros = self.values(obs)
        return Decision(action, extras={"value": zeros, "log_prob": zeros})

    def values(self, obs: Obs) -> Array:
        """A critic without an opinion [N]."""
        return np.zeros(_rows(obs), np.float32)

    def update(self, batch: Any, *, step: int) -> Update:
        self.updates += 1
        return Update({}, batch.weight if isinstance(batch, Transitions) else None)

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.updates = int(state["updates"])
