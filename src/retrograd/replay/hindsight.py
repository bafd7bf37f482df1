"""Hindsight experience replay (Andrychowicz et al. 2017, arXiv:1707.01495): what was reached becomes the goal.

Of k + 1 samples k get another goal, one that the same game achieved: at its end (``final``), after the step or later
(``future``), or anywhere (``episode``). The goal changes in the observation and in its successor; reward and
termination are judged anew from the successor's achieved goal. Only finished games are sampled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from retrograd.core.errors import UsageError, suggest
from retrograd.core.seeding import load_rng_state, rng_state
from retrograd.core.types import Array, Transitions
from retrograd.replay.ring import RESET, TERMINATED, Change, Ring
from retrograd.replay.staging import Staging

STRATEGIES = ("final", "future", "episode")
PARTS = ("achieved_goal", "desired_goal")
Judge = Callable[[Array, Array], Array]  # achieved [B, ...], desired [B, ...] -> [B]


class Hindsight:
    """Reads one-step ``Transitions`` of dict observations. ``reached`` says where a goal ends the game; None where
    reaching it ends nothing."""

    def __init__(
        self,
        reward: Judge,
        rng: np.random.Generator,
        *,
        reached: Judge | None = None,
        strategy: str = "future",
        goals_per_step: int = 4,
        gamma: float = 0.98,
    ) -> None:
        if strategy not in STRATEGIES:
            hint = suggest(strategy, STRATEGIES)
            raise UsageError(f"strategy is {strategy!r}: must be one of {', '.join(STRATEGIES)}.{hint}")
        if goals_per_step < 0:
            raise UsageError(f"goals_per_step is {goals_per_step}: must be at least 0")
        if not 0.0 <= gamma <= 1.0:
            raise UsageError(f"gamma is {gamma}: must be between 0 and 1")
        self.reward, self.reached, self.strategy, self.gamma, self.rng = reward, reached, strategy, gamma, rng
        self.relabeled_share = goals_per_step / (goals_per_step + 1)

    def attach(self, ring: Ring) -> None:
        missing = [part for part in PARTS if part not in ring.obs_specs]
        if missing:
            raise UsageError(f"hindsight needs {missing[0]!r} in the observation, which has {sorted(ring.obs_specs)}")
        if ring.spec.frame_stack is not None:
            raise UsageError(f"frame_stack is {ring.spec.frame_stack}: hindsight reads observations without stacks")
        self._played = np.zeros(ring.num_envs, np.int64)
        self._first = np.zeros(ring.num_slots, np.int64)  # of the game that the step in a slot belongs to
        self._last = np.zeros(ring.num_slots, np.int64)

    def follow(self, ring: Ring, change: Change) -> Array:
        """All steps of the games that ended just now."""
        self._played += 1
        row = np.flatnonzero(change.reset)
        last = change.position[row]
        first = np.maximum(last - self._played[row] + 1, change.oldest[row])
        count = last - first + 1
        nth = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
        slot = ring.slot(np.repeat(row, count), np.repeat(first, count) + nth)
        self._first[slot] = np.repeat(first, count)
        self._last[slot] = np.repeat(last, count)
        self._played[row] = 0
        return slot

    def goal_positions(self, ring: Ring, row: Array, position: Array) -> Array:
        """The observations whose achieved goals are taken, one per sample."""
        slot = ring.slot(row, position)
        last = self._last[slot]
        if self.strategy == "final":
            return last + 1
        first = position if self.strategy == "future" else np.maximum(self._first[slot], ring.oldest()[row])
        return self.rng.integers(first, last, endpoint=True) + 1

    def read(self, ring: Ring, slot: Array, weight: Array, stage: Staging) -> Transitions:
        """Transitions, most of them with another goal than the one that was pursued."""
        row, position = ring.locate(slot)
        obs, next_obs = _gather(ring, slot), _gather(ring, ring.slot(row, position + 1))
        reward = ring.reward[slot]
        terminated = (ring.flags[slot] & TERMINATED) != 0
        relabeled = self.rng.random(len(slot)) < self.relabeled_share
        goal_slot = ring.slot(row, self.goal_positions(ring, row, position))
        goal = _gather(ring, goal_slot)["achieved_goal"][relabeled]
        if len(goal):
            achieved, pursued = next_obs["achieved_goal"][relabeled], next_obs["desired_goal"][relabeled]
            reward[relabeled] = self.reward(achieved, goal)
            if self.reached is not None:
                # an end that the old goal does not explain stays one
                other_end = terminated[relabeled] & ~self.reached(achieved, pursued)
                terminated[relabeled] = other_end | self.reached(achieved, goal)
            obs["desired_goal"][relabeled] = goal
            next_obs["desired_goal"][relabeled] = goal
        action = ring.action[slot]
        return Transitions(
            obs={key: stage.tensor(array) for key, array in obs.items()},
            action=stage.tensor(action.astype(np.int64) if action.dtype.kind in "iu" else action),
            reward=stage.tensor(reward),
            discount=stage.tensor(np.where(terminated, np.float32(0), np.float32(self.gamma))),
            next_obs={key: stage.tensor(array) for key, array in next_obs.items()},
            weight=stage.tensor(weight),
            index=ring.index(row, position),
        )

    def check_valid(self, ring: Ring, row: Array, position: Array) -> None:
        """Raise AssertionError where a start does not lie in the finished game that it is said to lie in."""
        slot = ring.slot(row, position)
        first, last = self._first[slot], self._last[slot]
        assert ((first <= position) & (position <= last) & (last < ring.head[row])).all(), "a game's bounds are wrong"
        assert (ring.flags[ring.slot(row, last)] & RESET).all(), "a game that goes on is sampled"
        assert (self._played[~ring.live] == 0).all(), "a game that is over is still counted"

    def state_dict(self) -> dict[str, Any]:
        arrays = {"played": self._played.copy(), "first": self._first.copy(), "last": self._last.copy()}
        return arrays | {"rng": rng_state(self.rng)}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._played[:], self._first[:], self._last[:] = state["played"], state["first"], state["last"]
        load_rng_state(self.rng, state["rng"])


def _gather(ring: Ring, slot: Array) -> dict[str, Array]:
    specs = ring.obs_specs.items()
    out = {key: np.empty((len(slot), *ring.frame_shape(key)), spec.dtype) for key, spec in specs}
    ring.gather(slot, out)
    return out
