"""Rollouts for policy gradients: T steps of N rows, with generalized advantages (``core.returns.gae``).

Sums are cut after a step that ended a life, a game or the watching of it; with ``reward_ends_sum`` also after one that
was rewarded, as if it had ended a game. At a time limit the successor's value is
that of the true successor, never of the reset observation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import CheckpointError, UsageError
from retrograd.core.returns import gae
from retrograd.core.types import Array, Obs, Rollout, Step
from retrograd.replay.ring import ONLY, obs_arrays
from retrograd.replay.staging import Staging

if TYPE_CHECKING:
    from torch import device

ValueOf = Callable[[Obs], Array]  # [K, ...] -> [K]
NEEDED = ("value", "log_prob")


class RolloutBuffer:
    """Takes ``num_steps`` steps that remember ``value`` and ``log_prob``, then gives one rollout."""

    def __init__(
        self,
        num_steps: int,
        num_envs: int,
        *,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        reward_ends_sum: bool = False,
        device: str | device = "cpu",
        pin_memory: bool = True,
    ) -> None:
        if num_steps < 1 or num_envs < 1:
            raise UsageError(f"num_steps is {num_steps} and num_envs {num_envs}: both must be at least 1")
        for name, number in (("gamma", gamma), ("gae_lambda", gae_lambda)):
            if not 0.0 <= number <= 1.0:
                raise UsageError(f"{name} is {number}: must be between 0 and 1")
        self.num_steps, self.num_envs, self.gamma, self.gae_lambda = num_steps, num_envs, gamma, gae_lambda
        self.reward_ends_sum = reward_ends_sum
        self._stage = Staging(device, pin_memory=pin_memory)
        self._fields: dict[str, Array] = {}
        self._count = 0
        # (t, rows, observations) whose value no later step remembers: time limits and the rollout's edge
        self.successors: list[tuple[int, Array, Obs]] = []

    @property
    def full(self) -> bool:
        return self._count == self.num_steps

    def __len__(self) -> int:
        """Steps taken since the last rollout."""
        return self._count

    def add(self, step: Step) -> None:
        """Remember one step of every row."""
        if self.full:
            raise UsageError(f"the rollout already has its {self.num_steps} steps: finish it first")
        missing = [name for name in NEEDED if name not in step.extras]
        if missing:
            raise UsageError(f"extras lack {missing[0]!r}: a rollout needs {', '.join(NEEDED)} of every step")
        if len(step.reward) != self.num_envs:
            raise UsageError(f"the step has {len(step.reward)} rows: must be {self.num_envs}")
        arrays = {f"obs.{key}": array for key, array in obs_arrays(step.obs).items()}
        arrays |= {f"extras.{name}": np.asarray(array) for name, array in step.extras.items()}
        reward, terminated = np.asarray(step.reward, np.float32), np.asarray(step.terminated, bool)
        if self.reward_ends_sum:
            terminated = terminated | (reward != 0)
        cut = np.asarray(terminated | step.truncated | step.reset, bool)
        arrays |= {"action": step.action, "reward": reward, "terminated": terminated, "cut": cut}
        for name, array in arrays.items():
            if name not in self._fields:
                self._fields[name] = self._stage.buffer((self.num_steps, *array.shape), array.dtype)
            self._fields[name][self._count] = array
        self._remember_successors(step, cut & ~arrays["terminated"])
        self._count += 1

    def _remember_successors(self, step: Step, stopped: Array) -> None:
        row = np.arange(self.num_envs) if self._count == self.num_steps - 1 else np.flatnonzero(stopped)
        if len(row):
            parts = {key: array[row].copy() for key, array in obs_arrays(step.next_obs).items()}
            self.successors.append((self._count, row, parts[ONLY] if parts.keys() == {ONLY} else parts))

    def finish(self, value_of: ValueOf) -> Rollout:
        """The rollout; ``value_of`` is asked for the successors whose value no step remembers."""
        return self.complete([value_of(obs) for _, _, obs in self.successors])

    def complete(self, values: list[Array]) -> Rollout:
        """The same from the values of all ``successors``, in their order."""
        if not self.full:
            raise UsageError(f"the rollout has {self._count} of its {self.num_steps} steps: too early to finish it")
        value = np.asarray(self._fields["extras.value"], np.float32)
        next_value = np.empty_like(value)
        next_value[:-1] = value[1:]
        for (t, row, _), found in zip(self.successors, values, strict=True):
            next_value[t, row] = found
        self.successors = []
        self._count = 0
        return self._make(value, next_value)

    def state_dict(self) -> dict[str, Any]:
        """The steps taken so far: a run may be saved in the middle of a rollout."""
        return {
            "count": self._count,
            "num_steps": self.num_steps,
            "fields": {name: array[: self._count].copy() for name, array in self._fields.items()},
            "successors": [
                {"t": t, "row": row.copy(), "obs": dict(obs_arrays(obs))} for t, row, obs in self.successors
            ],
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        if int(state["num_steps"]) != self.num_steps:
            raise CheckpointError(f"the saved rollout has {state['num_steps']} steps, this one has {self.num_steps}")
        self._count = int(state["count"])
        self._fields = {}
        for name, saved in state["fields"].items():
            array = np.asarray(saved)
            if array.shape[1:2] != (self.num_envs,):
                raise CheckpointError(f"the saved rollout has {array.shape[1]} rows, this one has {self.num_envs}")
            self._fields[name] = np.empty((self.num_steps, *array.shape[1:]), array.dtype)
            self._fields[name][: self._count] = array
        self.successors = []
        for one in state["successors"]:
            parts = {key: np.asarray(array) for key, array in one["obs"].items()}
            obs = parts[ONLY] if parts.keys() == {ONLY} else parts
            self.successors.append((int(one["t"]), np.asarray(one["row"]), obs))

    def check_valid(self) -> None:
        """Raise AssertionError where the steps taken so far contradict themselves."""
        assert 0 <= self._count <= self.num_steps, "the number of steps is wrong"
        assert bool(self._fields) == (self._count > 0), "there are fields without steps, or steps without fields"
        for name, array in self._fields.items():
            assert array.shape[:2] == (self.num_steps, self.num_envs), f"{name} has the shape {array.shape}"
        wanted: dict[int, list[int]] = {}
        if self._count:
            cut, terminated = self._fields["cut"][: self._count], self._fields["terminated"][: self._count]
            assert (cut | ~terminated).all(), "a termination does not cut the sums"
            for t, stopped in enumerate(cut & ~terminated):
                rows = range(self.num_envs) if t == self.num_steps - 1 else np.flatnonzero(stopped).tolist()
                if len(rows):
                    wanted[t] = list(rows)
        assert {t: row.tolist() for t, row, _ in self.successors} == wanted, "a successor is missing or too many"
        for _, row, obs in self.successors:
            assert all(len(array) == len(row) for array in obs_arrays(obs).values()), "a successor has no observation"

    def game_starts_allowed(self) -> Array:
        """[count, N] bool: steps that may be a game's first, as far as the steps before them tell."""
        allowed = np.ones((self._count, self.num_envs), bool)
        if self._count > 1:
            allowed[1:] = self._fields["cut"][: self._count - 1]
        return allowed

    def _make(self, value: Array, next_value: Array) -> Rollout:
        fields, tensor = self._fields, self._stage.tensor
        self._fields = {}  # the rollout owns its arrays: the next one gets others
        advantage = gae(
            fields["reward"],
            np.where(fields["terminated"], np.float32(0), np.float32(self.gamma)),
            value,
            next_value,
            fields["cut"],
            gae_lambda=self.gae_lambda,
        )
        obs = {name.removeprefix("obs."): tensor(array) for name, array in fields.items() if name.startswith("obs.")}
        extras = {
            name.removeprefix("extras."): tensor(array)
            for name, array in fields.items()
            if name.startswith("extras.") and name.removeprefix("extras.") not in NEEDED
        }
        return Rollout(
            obs=obs[ONLY] if obs.keys() == {ONLY} else obs,
            action=tensor(fields["action"]),
            reward=tensor(fields["reward"]),
            log_prob=tensor(np.asarray(fields["extras.log_prob"], np.float32)),
            value=tensor(value),
            advantage=tensor(advantage),
            returns=tensor(advantage + value),
            extras=extras,
        )
