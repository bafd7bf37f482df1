"""How much memory a replay will take, known before anything is allocated. Needs no torch."""

from __future__ import annotations

from math import prod

import numpy as np
import psutil

from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec

COMPRESSED_BLOCK_SLOTS = 16
ASSUMED_RATIO = 6.0  # the compressed frames of Atari games take a sixth or less; noise would take all of it


def slots_per_row(capacity: int, num_envs: int, stack: int, block_slots: int = 1) -> int:
    """The ring's length: room for ``capacity`` transitions of games without end, and the frames around them."""
    transitions = -(-capacity // num_envs)
    if block_slots == 1:
        return transitions + stack
    return (-(-(transitions + stack) // block_slots) + 1) * block_slots


def bytes_needed(
    spec: EnvSpec,
    capacity: int,
    num_envs: int = 1,
    *,
    compressed: bool = False,
    prioritized: bool = False,
    extras: dict[str, ArraySpec] | None = None,
    ratio: float = ASSUMED_RATIO,
) -> int:
    """Bytes of a full replay; for a compressed one an estimate that rests on ``ratio``."""
    stack = spec.frame_stack or 1
    slots = num_envs * slots_per_row(capacity, num_envs, stack, COMPRESSED_BLOCK_SLOTS if compressed else 1)
    arrays = spec.obs.values() if isinstance(spec.obs, dict) else (spec.obs,)
    frame = sum(prod(array.shape) * array.dtype.itemsize for array in arrays)
    if spec.frame_stack is not None:
        frame //= stack
    if isinstance(spec.action, DiscreteActions):
        action = np.min_scalar_type(spec.action.n - 1).itemsize
    else:
        action = 4 * prod(spec.action.low.shape)
    extra = sum(prod(array.shape) * array.dtype.itemsize for array in (extras or {}).values())
    small = action + extra + 4 + 1 + 1 + 1  # reward, flags, since, valid
    frames = round(slots * frame / ratio) if compressed else slots * frame
    tree = 2 * 8 * (1 << max(slots - 1, 1).bit_length()) if prioritized else 0
    return frames + slots * small + tree


def check_memory(needed: int, *, available: int | None = None, reserve: float = 0.1) -> None:
    """Raise UsageError when the machine has not ``needed`` bytes to spare beside a reserve."""
    available = psutil.virtual_memory().available if available is None else available
    usable = int(available * (1 - reserve))
    if needed > usable:
        raise UsageError(
            f"the replay needs {needed / 1e9:.1f} GB, but only {usable / 1e9:.1f} GB are free: "
            "choose a smaller capacity or the compressed storage"
        )
