"""From Gymnasium's spaces to our specs, and from its observations to our arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from retrograd.core.errors import UsageError
from retrograd.core.types import Array, ArraySpec, ContinuousActions, DiscreteActions

Convert = Callable[[Any], Any]


def describe_actions(space: spaces.Space[Any], names: tuple[str, ...] = ()) -> DiscreteActions | ContinuousActions:
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(int(space.n), names)
    if isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind == "f":
        return ContinuousActions(space.low.astype(np.float32), space.high.astype(np.float32))
    raise UsageError(f"actions of {space} are not supported: Discrete or a Box of real numbers are")


def describe_observations(space: spaces.Space[Any]) -> tuple[ArraySpec | dict[str, ArraySpec], Convert]:
    """The spec of one row and the function that brings a batch [N, ...] into its form.

    Real numbers become float32, single choices one-hot vectors, and images and boards of booleans [H, W, C] become
    [C, H, W].
    """
    if isinstance(space, spaces.Dict):
        parts = {key: _describe_array(part) for key, part in space.spaces.items()}
        converts = {key: convert for key, (_, convert) in parts.items()}
        return (
            {key: spec for key, (spec, _) in parts.items()},
            lambda batch: {key: convert(batch[key]) for key, convert in converts.items()},
        )
    return _describe_array(space)


def _describe_array(space: spaces.Space[Any]) -> tuple[ArraySpec, Convert]:
    if isinstance(space, spaces.Discrete):
        eye, start = np.eye(int(space.n), dtype=np.float32), int(space.start)
        return ArraySpec((int(space.n),), eye.dtype, 0.0, 1.0), lambda batch: eye[batch - start]
    if isinstance(space, spaces.MultiBinary):
        return ArraySpec(tuple(space.shape), np.dtype(np.float32), 0.0, 1.0), _to_float
    if not isinstance(space, spaces.Box):
        raise UsageError(
            f"observations of {space} are not supported: Box, Discrete, MultiBinary or a Dict of these are"
        )
    dtype = np.dtype(space.dtype) if space.dtype is not None else np.dtype(np.float32)
    low, high = float(np.min(space.low)), float(np.max(space.high))
    shape = tuple(space.shape)
    keep = dtype == np.uint8 or (dtype == np.bool_ and len(shape) == 3)
    # a cube is read as Gymnasium's custom has it: channels last
    if dtype.kind in "ub" and len(shape) == 3 and shape[2] <= min(shape[:2]):
        shape = (shape[2], shape[0], shape[1])
        convert: Convert = _channels_first if keep else _channels_first_float
    else:
        convert = _as_is if keep else _to_float
    return ArraySpec(shape, dtype if keep else np.dtype(np.float32), low, high), convert


def _as_is(batch: Array) -> Array:
    return batch


def _to_float(batch: Array) -> Array:
    return batch.astype(np.float32, copy=False)


def _channels_first(batch: Array) -> Array:
    return np.ascontiguousarray(batch.transpose(0, 3, 1, 2))


def _channels_first_float(batch: Array) -> Array:
    return _to_float(_channels_first(batch))
