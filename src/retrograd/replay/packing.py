"""Nested dicts and lists of plain values and arrays as bytes: a JSON head, then the arrays. No pickle."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from retrograd.core.types import Array

ARRAY = "\x00array"  # marks an array in the head; no key of ours begins so


def pack(value: Any) -> bytes:
    """Everything that ``unpack`` gives back equal."""
    arrays: list[Array] = []
    head = json.dumps(_outline(value, arrays)).encode()
    return b"".join([len(head).to_bytes(4, "little"), head, *(array.tobytes() for array in arrays)])


def _outline(value: Any, arrays: list[Array]) -> Any:
    if isinstance(value, dict):
        return {key: _outline(item, arrays) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_outline(item, arrays) for item in value]
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {ARRAY: [value.dtype.str, list(value.shape)]}
    return value


def unpack(data: bytes) -> Any:
    """Raises ValueError where the bytes are not what ``pack`` made."""
    length = int.from_bytes(data[:4], "little")
    try:
        head = json.loads(data[4 : 4 + length])
        value, used = _rebuild(head, data, 4 + length)
    except (TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"the head makes no sense ({error})") from error
    if used != len(data):
        raise ValueError(f"{len(data) - used} bytes are left over")
    return value


def _rebuild(head: Any, data: bytes, at: int) -> tuple[Any, int]:
    if isinstance(head, list):
        items = []
        for part in head:
            item, at = _rebuild(part, data, at)
            items.append(item)
        return items, at
    if not isinstance(head, dict):
        return head, at
    if ARRAY in head:
        kind, shape = head[ARRAY]
        if np.dtype(kind).kind not in "biuf" or any(type(size) is not int or size < 0 for size in shape):
            raise ValueError(f"no array of numbers: {kind} {shape}")
        count = math.prod(shape)  # in whole numbers of any size: numpy's product would wrap
        array = np.frombuffer(data, np.dtype(kind), count, at).reshape(shape)
        return array, at + array.nbytes
    result = {}
    for key, part in head.items():
        result[key], at = _rebuild(part, data, at)
    return result, at
