"""Which slots may begin a sample now: their window is complete and their oldest frame still there."""

from __future__ import annotations

from typing import Any

import numpy as np

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

    def current(self, ring: Ring, index: Array) -> tuple[Array, Array]:
        """Of sampled steps those that can still be sampled: their slots, and their places in ``index``."""
        if KERNELS is None:
            return self.current_numpy(ring, index)
        slot, place = np.empty(len(index), np.int64), np.empty(len(index), np.int64)
        index = np.ascontiguousarray(index, np.int64)
        count = KERNELS.current(index, self.valid, ring.written, ring.block_slots, ring.slots_per_row, slot, place)
        return slot[:count], place[:count]

    def current_numpy(self, ring: Ring, index: Array) -> tuple[Array, Array]:
        row, position = index % ring.num_envs, index // ring.num_envs
        slot = ring.slot(row, position)
        place = np.flatnonzero(self.valid[slot] & (position >= ring.oldest()[row]))
        return slot[place], place

    def state_dict(self) -> dict[str, Any]:
        return {"valid": self.valid.copy()}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.valid[:] = state["valid"]
        self.count = int(np.count_nonzero(self.valid))

    def check_valid(self) -> None:
        assert self.count == np.count_nonzero(self.valid), "the number of valid starts is wrong"
