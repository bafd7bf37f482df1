"""Frames as they are, one array for all rows. Pages are touched as the ring fills, not before."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from retrograd.core.types import Array
from retrograd.replay.gather import gather_frames
from retrograd.replay.ring import Ring


class RawStorage(Ring):
    """One frame once, uncompressed; vector and dict observations too."""

    name = "raw"

    def _allocate_frames(self) -> None:
        specs = self.obs_specs.items()
        self.frames = {key: np.zeros((self.num_slots, *self.frame_shape(key)), s.dtype) for key, s in specs}

    def _write(self, row: Array, position: Array, frames: Mapping[str, Array]) -> None:
        slot = self.slot(row, position)
        for key, array in frames.items():
            self.frames[key][slot] = array

    def write_frames(self, row: int, first: int, frames: Mapping[str, Array]) -> None:
        length = len(next(iter(frames.values())))
        slot = self.slot(row, np.arange(first, first + length))
        for key, array in frames.items():
            self.frames[key][slot] = array

    def gather(self, slot: Array, out: Mapping[str, Array]) -> None:
        for key, array in out.items():
            gather_frames(self.frames[key], slot, array)

    def frame_bytes(self) -> int:
        # untouched pages of the ring cost nothing yet
        used = int(np.minimum(self.written, self.slots_per_row).sum())
        return sum(array[0].nbytes * used for array in self.frames.values())
