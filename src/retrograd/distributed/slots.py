"""Rollouts in shared memory: a worker fills its slots in turn, the learner copies them out and hands them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retrograd.agents.impala import Unrolls
from retrograd.core.types import Array, ArraySpec, DiscreteActions, EnvSpec, Obs, Step
from retrograd.replay.ring import ONLY, obs_arrays

Successor = tuple[int, Array, Obs]  # t, rows and observations no step shows


@dataclass(frozen=True, slots=True)
class Filled:
    """A worker's word that a slot may be read."""

    worker: int
    slot: int
    version: int  # the updates that the weights which played it had
    successors: tuple[Successor, ...]  # at time limits: rare, so they travel with the word


class Slots:
    """The memory of one worker: ``count`` rollouts [T, N]. Sent to a process, it stays the same memory."""

    def __init__(self, spec: EnvSpec, rollout_steps: int, num_envs: int, count: int, context: Any) -> None:
        self.count, self.rollout_steps, self.num_envs = count, rollout_steps, num_envs
        steps = (rollout_steps, num_envs)
        obs = spec.obs if isinstance(spec.obs, dict) else {ONLY: spec.obs}
        actions = spec.action
        action = (
            ArraySpec((), np.dtype(np.int64))
            if isinstance(actions, DiscreteActions)
            else ArraySpec(actions.low.shape, np.dtype(np.float32))
        )
        one = {name: ArraySpec((), np.dtype(np.float32)) for name in ("log_prob", "reward")}
        one |= {name: ArraySpec((), np.dtype(bool)) for name in ("terminated", "cut")}
        fields = {**{f"obs.{name}": each for name, each in obs.items()}, "action": action, **one}
        self._memory = {name: _shared((count, *steps, *each.shape), each.dtype) for name, each in fields.items()}
        for name, each in obs.items():  # behind the last step
            self._memory[f"last.{name}"] = _shared((count, num_envs, *each.shape), each.dtype)
        # slots are used in turn, so that a count of the free ones is all there is to say
        self.free = context.Semaphore(count)

    def view(self, slot: int) -> dict[str, Array]:
        """The arrays of one slot, by name; what is written there is seen by the other process."""
        return {name: tensor[slot].numpy() for name, tensor in self._memory.items()}


class SlotRollouts:
    """The worker's side of its slots, as the on-policy loop wants rollouts."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._slot = 0
        self._arrays = slots.view(0)
        self._count = 0
        self._successors: list[Successor] = []

    @property
    def full(self) -> bool:
        return self._count == self._slots.rollout_steps

    def add(self, step: Step) -> None:
        t, arrays = self._count, self._arrays
        cut = np.asarray(step.terminated | step.truncated | step.reset, bool)
        values = {"action": step.action, "log_prob": step.extras["log_prob"], "reward": step.reward}
        values |= {"terminated": step.terminated, "cut": cut}
        values |= {f"obs.{name}": array for name, array in obs_arrays(step.obs).items()}
        for name, array in values.items():
            arrays[name][t] = array
        next_obs = obs_arrays(step.next_obs)
        self._count += 1
        if self.full:
            for name, array in next_obs.items():
                arrays[f"last.{name}"][:] = array
            return
        rows = np.flatnonzero(cut & ~np.asarray(step.terminated, bool))
        if len(rows):
            self._successors.append((t, rows, _as_obs({name: array[rows] for name, array in next_obs.items()})))

    def finish(self, value_of: Callable[..., Any]) -> tuple[int, tuple[Successor, ...]]:
        """The slot that is full and the successors at time limits; the learner values them, not this worker."""
        done = (self._slot, tuple(self._successors))
        self._slot = (self._slot + 1) % self._slots.count
        self._arrays, self._count, self._successors = self._slots.view(self._slot), 0, []
        return done


def gather(filled: list[Filled], slots: list[Slots]) -> Unrolls:
    """Copies of the rollouts side by side, [T, B]; afterwards the slots may be filled again."""
    views = [slots[each.worker].view(each.slot) for each in filled]

    def beside(name: str, axis: int) -> Array:
        return np.concatenate([view[name] for view in views], axis=axis)

    names = [name.removeprefix("obs.") for name in views[0] if name.startswith("obs.")]
    num_envs, rollout_steps = slots[0].num_envs, slots[0].rollout_steps
    rows = num_envs * len(views)
    obs = {name: [beside(f"last.{name}", 0)] for name in names}
    at_step, at_row = [np.full(rows, rollout_steps - 1)], [np.arange(rows)]
    for number, each in enumerate(filled):
        for t, row, seen in each.successors:
            at_step.append(np.full(len(row), t))
            at_row.append(row + number * num_envs)
            for name, array in obs_arrays(seen).items():
                obs[name].append(array)
    return Unrolls(
        obs=_as_obs({name: beside(f"obs.{name}", 1) for name in names}),
        action=beside("action", 1),
        log_prob=beside("log_prob", 1),
        reward=beside("reward", 1),
        terminated=beside("terminated", 1),
        cut=beside("cut", 1),
        successor_obs=_as_obs({name: np.concatenate(arrays) for name, arrays in obs.items()}),
        successor_step=np.concatenate(at_step),
        successor_row=np.concatenate(at_row),
    )


def _as_obs(arrays: dict[str, Array]) -> Obs:
    return arrays[ONLY] if arrays.keys() == {ONLY} else arrays


def _shared(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Tensor:
    tensor: Tensor = torch.from_numpy(np.zeros(shape, dtype)).share_memory_()  # type: ignore[no-untyped-call]
    return tensor
