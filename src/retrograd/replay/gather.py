"""Copying frames by slot, in C where the extension was built."""

from __future__ import annotations

import numpy as np

from retrograd.core.compiled import load_extension
from retrograd.core.types import Array

KERNELS = load_extension("retrograd.replay._kernels", version=4)


def gather_frames_numpy(frames: Array, slot: Array, out: Array) -> None:
    """``out[i] = frames[slot[i]]``, zeros where the slot is negative."""
    np.take(frames, slot, axis=0, out=out, mode="clip")
    missing = slot < 0
    if missing.any():
        out[missing] = 0


def gather_frames(frames: Array, slot: Array, out: Array) -> None:
    """The same as ``gather_frames_numpy``, faster where it can be."""
    if KERNELS is None or not out.flags.c_contiguous:
        gather_frames_numpy(frames, slot, out)
    else:
        KERNELS.gather(frames, len(frames), np.ascontiguousarray(slot, np.int64), out)
