"""n-step transitions: R = Σ_{k<m} γ^k r_{t+k}, bootstrapped with γ^m from the observation m steps on.

m is n, or less where a life, a game or the watching of it ends sooner; after a termination the discount is 0. Every
step of a game starts a transition, also the last n - 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.types import Array, Transitions
from retrograd.replay.gather import KERNELS
from retrograd.replay.ring import CUT, ONLY, STEP, TERMINATED, Change, Ring
from retrograd.replay.staging import Staging


class NStep:
    """Reads ``Transitions``."""

    def __init__(self, n_steps: int = 1, gamma: float = 0.99) -> None:
        if n_steps < 1:
            raise UsageError(f"n_steps is {n_steps}: must be at least 1")
        if not 0.0 <= gamma <= 1.0:
            raise UsageError(f"gamma is {gamma}: must be between 0 and 1")
        self.n_steps, self.gamma = n_steps, gamma
        self._powers = gamma ** np.arange(n_steps + 1, dtype=np.float64)  # [n + 1]
        self._discounts = self._powers.astype(np.float32)
        self._ahead = np.arange(n_steps)[:, None]  # [n, 1]

    def attach(self, ring: Ring) -> None:
        shortest = self.n_steps + ring.stack + ring.block_slots + 1
        if ring.slots_per_row < shortest:
            raise UsageError(
                f"capacity is {ring.capacity}, {ring.slots_per_row} slots for each of {ring.num_envs} rows: windows of "
                f"{self.n_steps} steps need at least {shortest}"
            )
        self._waiting = np.zeros(ring.num_envs, np.int64)  # steps of every row whose window is not complete yet

    def follow(self, ring: Ring, change: Change) -> Array:
        """The slots whose windows the newest step completed."""
        self._waiting += 1
        opened = np.where(change.cut, self._waiting, self._waiting == self.n_steps)  # [N] number of new starts
        if opened.all() and self.n_steps == 1:
            slot = ring.slot(np.arange(ring.num_envs), change.position)
        else:
            row = np.repeat(np.arange(ring.num_envs), opened)
            nth = np.arange(len(row)) - np.repeat(np.cumsum(opened) - opened, opened)
            slot = ring.slot(row, (change.position - self._waiting + 1)[row] + nth)
        self._waiting -= opened
        return slot

    def windows(self, ring: Ring, start: Array) -> tuple[Array, Array, Array, Array, int]:
        """Of the windows that start in the given slots: index, return and discount, each [B], and the slots of their
        frames with the shift between the two stacks, as of ``pair_slots``."""
        if KERNELS is None:
            return self.windows_numpy(ring, start)
        count, stack = len(start), ring.stack
        index, start = np.empty(count, np.int64), np.ascontiguousarray(start, np.int64)
        reward, discount = np.empty(count, np.float32), np.empty(count, np.float32)
        slot = np.empty((count, 2 * stack), np.int64)
        shift: int = KERNELS.windows(
            ring.flags, ring.since, ring.reward, self._powers, ring.written, start, ring.slots_per_row, stack, CUT,
            TERMINATED, index, reward, discount, slot)  # fmt: skip
        if shift:
            frames = stack + shift
            slot = slot.reshape(-1)[: count * frames].reshape(count, frames)
        return index, reward, discount, slot, shift

    def windows_numpy(self, ring: Ring, start: Array) -> tuple[Array, Array, Array, Array, int]:
        row, position = ring.locate(start)
        reward, discount, length = self.measure(ring, row, position)
        slot, shift = pair_slots(ring, row, position, length)
        return ring.index(row, position), reward, discount, slot, shift

    def measure(self, ring: Ring, row: Array, position: Array) -> tuple[Array, Array, Array]:
        """Return, discount and length of the windows, each [B]."""
        if self.n_steps == 1:
            slot = ring.slot(row, position)
            discount = np.where(ring.flags[slot] & TERMINATED, np.float32(0), self._discounts[1])
            return ring.reward[slot], discount, np.ones(len(slot), np.int64)
        slot = ring.slot(row, position + self._ahead)  # [n, B]
        flags = ring.flags[slot]
        cut = (flags & CUT) != 0
        length = np.where(cut.any(axis=0), cut.argmax(axis=0) + 1, self.n_steps)
        # float64 in the order of time: the same sum as adding up reward after reward
        rewards = np.where(self._ahead < length, ring.reward[slot], 0.0) * self._powers[:-1, None]
        last = flags[length - 1, np.arange(len(length))]
        discount = np.where(last & TERMINATED, np.float32(0), self._discounts[length])
        return np.add.reduce(rewards, axis=0, initial=0.0).astype(np.float32), discount, length

    def read(self, ring: Ring, slot: Array, weight: Array, stage: Staging) -> Transitions:
        """The transitions that start in the given slots."""
        index, reward, discount, frame_slot, shift = self.windows(ring, slot)
        stack = ring.stack
        stacked = ring.spec.frame_stack is not None
        where = (slice(0, stack), slice(shift or stack, None)) if stacked else (0, 1)
        obs, next_obs = {}, {}
        for key, frames in stage.frames(ring, frame_slot).items():
            obs[key], next_obs[key] = stage.pair(frames, *where)
        single = ONLY in obs
        action = ring.action[slot]
        return Transitions(
            obs=obs[ONLY] if single else obs,
            action=stage.tensor(action.astype(np.int64) if action.dtype.kind in "iu" else action),
            reward=stage.tensor(reward),
            discount=stage.tensor(discount),
            next_obs=next_obs[ONLY] if single else next_obs,
            weight=stage.tensor(weight),
            index=index,
        )

    def check_valid(self, ring: Ring, row: Array, position: Array) -> None:
        """Raise AssertionError where a start's window is not complete, or the waiting steps are miscounted."""
        if len(row):
            _, _, length = self.measure(ring, row, position)
            assert (position + length <= ring.head[row]).all(), "a window reaches beyond the newest step"
        for one, waiting in enumerate(self._waiting.tolist()):
            newest = int(ring.head[one]) - 1 - np.arange(min(self.n_steps - 1, int(ring.head[one])))
            flags = ring.flags[ring.slot(one, newest)]
            open_steps = (flags & STEP != 0) & (flags & CUT == 0)
            run = len(flags) if open_steps.all() else int(np.argmin(open_steps))
            assert waiting == (run if ring.live[one] else 0), f"row {one} has {run} steps waiting, not {waiting}"

    def state_dict(self) -> dict[str, Any]:
        return {"waiting": self._waiting.copy(), "n_steps": self.n_steps}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        if state["n_steps"] != self.n_steps:
            raise UsageError(f"the saved replay has n_steps {state['n_steps']}: this one has {self.n_steps}")
        self._waiting[:] = state["waiting"]


def pair_slots(ring: Ring, row: Array, position: Array, length: Array) -> tuple[Array, int]:
    """The slots of every step's stack and of the stack ``length`` steps on, -1 before a game's first frame.

    Where all lengths are alike and the two overlap, one run of frames holds both, [B, C + shift]: the second begins at
    ``shift``. Otherwise they lie behind one another, [B, 2 * C], and the shift is 0.
    """
    first, shift = ring.first_of_stack(row, position), int(length[0])
    if ring.stack > shift and (length == shift).all():
        return stack_slots(ring, row, position, first, ring.stack + shift), shift
    after = position + length
    slot = stack_slots(ring, row, position, first, ring.stack)
    next_slot = stack_slots(ring, row, after, ring.first_of_stack(row, after), ring.stack)
    return np.concatenate([slot, next_slot], axis=1), 0


def stack_slots(ring: Ring, row: Array, position: Array, first: Array, frames: int) -> Array:
    """[B, frames] slots from the oldest place of the stack at ``position`` on; -1 before ``first``."""
    wanted = (position - (ring.stack - 1))[:, None] + np.arange(frames)
    return np.where(wanted < first[:, None], -1, ring.slot(row[:, None], wanted))
