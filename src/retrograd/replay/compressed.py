"""Frames in small blocks in the order of time, coded losslessly; a frame and its stack mostly lie in one block.

Every row writes into an open block of plain frames, which is coded when it is full. A block is given up as a whole
when the ring comes round to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.types import Array, EnvSpec
from retrograd.replay.codec import decode_frames, encode_block
from retrograd.replay.memory import COMPRESSED_BLOCK_SLOTS
from retrograd.replay.ring import ONLY, Ring

OBJECT_BYTES = 33 + 8  # what the interpreter adds to every coded block


class CompressedStorage(Ring):
    """The same as ``RawStorage`` for stacks of uint8 frames, in a fraction of the memory."""

    name = "compressed"
    block_slots = COMPRESSED_BLOCK_SLOTS

    def _allocate_frames(self) -> None:
        check_compressible(self.spec)
        shape = self.frame_shape(ONLY)
        self._line_bytes = prod(shape[1:])
        self._blocks_per_row = self.slots_per_row // self.block_slots
        self._blocks: list[bytes | None] = [None] * (self._blocks_per_row * self.num_envs)
        self._open = np.zeros((self.num_envs, self.block_slots, *shape), np.uint8)
        self._coded_bytes = 0

    def _write(self, row: Array, position: Array, frames: Mapping[str, Array]) -> None:
        offset = position % self.block_slots
        block = self.slot(row, position) // self.block_slots
        for given_up in block[offset == 0].tolist():
            self._put(given_up, None)
        self._open[row, offset] = frames[ONLY]
        full = offset == self.block_slots - 1
        for one_row, one_block in zip(row[full].tolist(), block[full].tolist(), strict=True):
            self._put(one_block, encode_block(self._open[one_row], self._line_bytes))

    def write_frames(self, row: int, first: int, frames: Mapping[str, Array]) -> None:
        array, size = frames[ONLY], self.block_slots
        end = first + len(array)
        while first < end:
            offset = first % size
            count = min(size - offset, end - first)
            block = int(self.slot(row, np.array(first))) // size
            self._open[row, offset : offset + count] = array[:count]
            full = offset + count == size
            self._put(block, encode_block(self._open[row], self._line_bytes) if full else None)
            first, array = first + count, array[count:]

    def _put(self, block: int, code: bytes | None) -> None:
        old = self._blocks[block]
        self._coded_bytes += _size(code) - _size(old)
        self._blocks[block] = code

    def gather(self, slot: Array, out: Mapping[str, Array]) -> None:
        decode_frames(self._blocks, self._open, slot, out[ONLY], self._blocks_per_row, self._line_bytes)

    def frame_bytes(self) -> int:
        return self._coded_bytes + self._open.nbytes


def _size(code: bytes | None) -> int:
    return 0 if code is None else len(code) + OBJECT_BYTES


def check_compressible(spec: EnvSpec) -> None:
    """Raise UsageError unless the observation is a stack of uint8 frames."""
    obs = spec.obs
    if isinstance(obs, dict) or spec.frame_stack is None or obs.dtype != np.uint8 or len(obs.shape) < 3:
        raise UsageError(f"the compressed storage holds stacked uint8 frames, not {obs}: use the raw storage")
