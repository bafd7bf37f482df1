"""Which slots may begin a sample now: their window is complete and their oldest frame still there."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import FailureGate
from retrograd.core.types import Array
from retrograd.replay.gather import KERNELS
from retrograd.replay.ring import Change, Ring


class Starts:
    """A mark per slot and their number, kept up to date by what ``add`` changes."""

    def __init__(self, num_slots: int) -> None:
        self.valid = np.zeros(num_slots, bool)
        self.count = 0

    def open(self, slot: Array) -> None:
        self.valid[slot] = True
        self.count += len(slot)

    def close(self, ring: Ring, change: Change) -> Array:
        """Unmark what was overwritten or lost a frame of its stack; the slots concerned."""
        advance = int((change.oldest - change.oldest_before).max())
        if advance == 0:
            return np.empty(0, np.int64)
        rows = np.arange(ring.num_envs)[:, None]
        position = change.oldest_before[:, None] + np.arange(advance + ring.stack - 1)  # [N, advance + stack - 1]
        lost = (position < change.oldest[:, None]) | (ring.first_of_stack(rows, position) < change.oldest[:, None])
        slot: Array = ring.slot(rows, position)[lost]
        slot = slot[self.valid[slot]]
        self.valid[slot] = False
        self.count -= len(slot)
        return slot

    def claim(self, ring: Ring, index: Array, priority: Array) -> tuple[Array, Array]:
        """Of sampled steps those that can still be sampled: their slots, and the sizes of their priorities."""
        if KERNELS is None or priority.dtype != np.float32:
            return self.claim_numpy(ring, index, priority)
        slot, size = np.empty(len(index), np.int64), np.empty(len(index), np.float64)
        index, priority = np.ascontiguousarray(index, np.int64), np.ascontiguousarray(priority)
        count = KERNELS.claim(
            index, priority, self.valid, ring.written, ring.block_slots, ring.slots_per_row, slot, size
        )
        if count < 0:
            raise _not_finite(priority)
        return slot[:count], size[:count]

    def claim_numpy(self, ring: Ring, index: Array, priority: Array) -> tuple[Array, Array]:
        size = np.abs(priority.astype(np.float64))
        if not np.isfinite(size).all():
            raise _not_finite(priority)
        row, position = index % ring.num_envs, index // ring.num_envs
        slot = ring.slot(row, position)
        current = self.valid[slot] & (position >= ring.oldest()[row])
        return slot[current], size[current]

    def state_dict(self) -> dict[str, Any]:
        return {"valid": self.valid.copy()}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.valid[:] = state["valid"]
        self.count = int(np.count_nonzero(self.valid))

    def check_valid(self) -> None:
        assert self.count == np.count_nonzero(self.valid), "the number of valid starts is wrong"


def _not_finite(priority: Array) -> FailureGate:
    return FailureGate(f"a replay priority is not finite: {priority[~np.isfinite(priority)][0]}")
