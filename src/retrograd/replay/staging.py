"""From numpy to the learner's device: batch buffers that are kept, and one copy of raw frames to a GPU.

The only module of this room that needs torch; it is imported when the first replay is built.
"""

from __future__ import annotations

import sys
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.types import Array

if TYPE_CHECKING:
    from torch import Tensor, device

    from retrograd.replay.ring import Ring

KEPT_BUFFERS = 4  # per shape: as many batches may be alive before a new one costs fresh pages
SMALL_BYTES = 1 << 16  # below it the allocator gives back pages it has: asking it costs less than looking for a buffer


def count_references(buffers: list[Array]) -> list[int]:
    """How many references each buffer has, its list's and those of counting included."""
    return [sys.getrefcount(buffer) for buffer in buffers]


# measured, as the cost of counting itself differs between versions of the interpreter
UNUSED_REFERENCES = count_references([np.empty(0)])[0]


class Staging:
    """Hands out host buffers and turns them into tensors on the device.

    With ``pin_memory`` the buffers of a CUDA device lie where it can fetch them by itself: the copy is only started,
    and a buffer is not handed out again before its copy is over.
    """

    def __init__(self, target: str | device = "cpu", *, pin_memory: bool = True) -> None:
        import torch

        self._torch, self._from_numpy = torch, torch.from_numpy
        self.device = torch.device(target)
        self._on_host = self.device.type == "cpu"
        self._pinned = pin_memory and self.device.type == "cuda"
        self._buffers: dict[tuple[tuple[int, ...], Any], list[Array]] = {}
        self._copies: dict[int, Any] = {}  # by the address of a pinned buffer: an event that its copy sets

    def buffer(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialized array; one given before comes again only when nobody holds it or a tensor of it."""
        if self._on_host and prod(shape) * dtype.itemsize < SMALL_BYTES:
            return np.empty(shape, dtype)
        kept = self._buffers.setdefault((shape, dtype), [])
        for place, references in enumerate(count_references(kept)):
            if references == UNUSED_REFERENCES:
                self._await_copy(kept[place])
                return kept[place]
        fresh = self._allocate(shape, dtype)
        if len(kept) < KEPT_BUFFERS:
            kept.append(fresh)
        return fresh

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        if not self._pinned:
            return np.empty(shape, dtype)
        kind = self._torch.from_numpy(np.empty(0, dtype)).dtype
        pinned: Array = self._torch.empty(shape, dtype=kind, pin_memory=True).numpy()
        return pinned

    def tensor(self, array: Array) -> Tensor:
        """The array on the device; on a CPU the same memory."""
        tensor = self._from_numpy(array)
        if self._on_host:
            return tensor
        if not self._pinned:
            return tensor.to(self.device)  # over when this returns
        if not tensor.is_pinned():  # else this copy would wait for all that were only started
            room = self.buffer(array.shape, array.dtype)
            room[...] = array
            tensor = self._from_numpy(room)
        return self._start_copy(tensor)

    def _start_copy(self, tensor: Tensor) -> Tensor:
        copy = tensor.to(self.device, non_blocking=True)
        event = self._torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._copies[tensor.data_ptr()] = event
        return copy

    def _await_copy(self, buffer: Array) -> None:
        event = self._copies.pop(buffer.ctypes.data, None) if self._copies else None
        if event is not None:
            event.synchronize()

    def pair(self, array: Array, first: slice | int, second: slice | int) -> tuple[Tensor, Tensor]:
        """Two parts of the second axis as tensors on the device, for one copy of the whole."""
        if self._on_host:  # an array is cut faster than a tensor
            return self._from_numpy(array[:, first]), self._from_numpy(array[:, second])
        whole = self.tensor(array)
        return whole[:, first], whole[:, second]

    def gather(self, ring: Ring, slot: Array) -> dict[str, Tensor]:
        """The frames of ``slot`` [...] as tensors [..., *frame]."""
        return {key: self.tensor(array) for key, array in self.frames(ring, slot).items()}

    def frames(self, ring: Ring, slot: Array) -> dict[str, Array]:
        """The frames of ``slot`` [...] in host buffers [..., *frame]."""
        out = {}
        for key, spec in ring.obs_specs.items():
            out[key] = self.buffer(slot.shape + ring.frame_shape(key), spec.dtype)
        ring.gather(slot, out)
        return out
