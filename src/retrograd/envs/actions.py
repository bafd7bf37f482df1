"""Checks of actions before they reach an environment: a bad one must fail here, not hang or crash there."""

from __future__ import annotations

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.types import Array, ContinuousActions, DiscreteActions


def check_action(action: Array, kind: DiscreteActions | ContinuousActions, num_envs: int) -> Array:
    """One valid action per row, as int64 [N] or float32 [N, action_dim].

    Real-valued actions are cut to the box, as Gaussian policies expect; NaN and wrong shapes are errors.
    """
    if isinstance(kind, DiscreteActions):
        return _check_discrete(np.asarray(action), kind, num_envs)
    values = np.asarray(action, np.float32)
    shape = (num_envs, *kind.low.shape)
    if values.shape != shape:
        raise UsageError(f"actions have shape {values.shape}, expected {shape}: one per environment row")
    if not np.isfinite(values).all():
        raise UsageError(f"actions must be finite numbers, got {values.tolist()}")
    clipped: Array = np.clip(values, kind.low, kind.high)
    return clipped


def _check_discrete(action: Array, kind: DiscreteActions, num_envs: int) -> Array:
    if action.dtype.kind not in "iu":
        raise UsageError(f"actions must be whole numbers from 0 to {kind.n - 1}, got an array of {action.dtype}")
    if action.shape != (num_envs,):
        raise UsageError(f"actions have shape {action.shape}, expected {(num_envs,)}: one per environment row")
    if action.min() < 0 or action.max() >= kind.n:
        raise UsageError(f"actions must be from 0 to {kind.n - 1}, got {action.tolist()}")
    return action.astype(np.int64)  # a copy: the caller may reuse the array while the games run
