"""Recurrent state of rows: arrays or tensors with the rows in front, alone or in tuples, lists and dicts."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.types import Array


def reset_rows(state: Any, fresh: Any, reset: Array) -> Any:
    """``state`` with the rows of new games taken from ``fresh``; the old state is not changed."""
    if state is None or not reset.any():
        return state
    if isinstance(state, dict):
        return {name: reset_rows(state[name], fresh[name], reset) for name in state}
    if isinstance(state, tuple | list):
        return type(state)(reset_rows(old, new, reset) for old, new in zip(state, fresh, strict=True))
    mixed = state.clone() if hasattr(state, "clone") else state.copy()
    mixed[reset] = fresh[reset]
    return mixed


def match_kind(saved: Any, fresh: Any) -> Any:
    """``saved`` with arrays where ``fresh`` has arrays, and tensors where it has tensors, on the same device."""
    if fresh is None:
        return None
    if isinstance(fresh, dict):
        return {name: match_kind(saved[name], item) for name, item in fresh.items()}
    if isinstance(fresh, tuple | list):
        return type(fresh)(match_kind(old, new) for old, new in zip(saved, fresh, strict=True))
    if isinstance(fresh, np.ndarray):
        return np.asarray(saved)
    return saved.to(fresh.device)
