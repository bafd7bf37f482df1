"""Copying frames by slot, in C where the extension was built."""

from __future__ import annotations

import importlib
from types import ModuleType

import numpy as np

from retrograd.core.types import Array

BUILT_FOR = 4  # a build left over from another version of the sources is not used


def load_kernels() -> ModuleType | None:
    """The C extension, or None where no compiler was at hand when the package was installed."""
    try:
        kernels = importlib.import_module("retrograd.replay._kernels")
    except ImportError:
        return None
    return kernels if kernels.VERSION == BUILT_FOR else None


KERNELS = load_kernels()


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
