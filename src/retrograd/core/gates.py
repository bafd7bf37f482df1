"""Failure gates: a value that must be finite and is not stops the run before it does harm.

Learners ask before the optimizer's step, once for all figures of an update; only when the answer is no is it worth
looking for where it began. Players ask about what came from outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import FailureGate
from retrograd.core.types import Array, EnvStep, Obs

if TYPE_CHECKING:
    from torch import Tensor

# what a batch calls it, and what a reader does
SPOKEN = {"obs": "observation", "next_obs": "observation", "returns": "return"}
# what of a batch was computed by the weights: where those are broken it is only the effect
COMPUTED = {"value", "advantage", "returns"}


def require_finite(step: int, *, batch: Any, weights: Iterable[Tensor], **figures: Tensor) -> None:
    """Stop before the optimizer spreads a NaN. ``figures`` are scalars, in the order in which they were computed.

    A sum is finite only if all its parts are: one number is fetched from the device.
    """
    if math.isfinite(sum(figure.detach() for figure in figures.values())):
        return
    name, value = _origin(batch, weights, figures)
    raise closed(name, value, step, batch)


def require_finite_outcome(step: int, outcome: EnvStep) -> None:
    """Stop before an environment's NaN is remembered; whole-number observations cannot hold one."""
    for name, rows in (("observation", outcome.next_obs), ("observation", outcome.obs), ("reward", outcome.reward)):
        for array in _arrays(rows):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                bad = ~np.isfinite(array.reshape(len(array), -1))
                found = np.flatnonzero(bad.any(1)).tolist()
                where = f"{name} of environment row {', '.join(map(str, found))}"
                raise closed(where, float(array.reshape(bad.shape)[bad][0]), step, outcome)


def require_finite_decision(step: int, action: Array, extras: Mapping[str, Array]) -> None:
    """Stop before an action or value of broken weights is played or remembered."""
    for name, array in {"action": action, **extras}.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            value = float(array[~np.isfinite(array)].flat[0])
            raise closed(f"{name} of the agent", value, step, {"action": action, **extras})


def require_finite_state(step: int, parts: Mapping[str, Mapping[str, Any]]) -> None:
    """Stop before weights or statistics that went bad are saved."""
    import torch

    for path, tensor in _tensors(parts):
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            value = float(tensor[~torch.isfinite(tensor)][0])
            raise closed(f"weight in {path}", value, step, {})


def closed(name: str, value: float, step: int, batch: Any) -> FailureGate:
    """The error of a gate that has closed, with the batch for the dump."""
    message = f"Failure gate triggered: non-finite {name} ({value}) at step {step}"
    return FailureGate(message, batch=dict(batch_arrays(batch)))


def batch_arrays(batch: Any, name: str = "") -> Iterator[tuple[str, Array]]:
    """Every array of a batch, however nested, by its path and on the host."""
    if is_dataclass(batch) and not isinstance(batch, type):
        for field in fields(batch):
            yield from batch_arrays(getattr(batch, field.name), f"{name}.{field.name}" if name else field.name)
    elif isinstance(batch, Mapping):
        for key, value in batch.items():
            yield from batch_arrays(value, f"{name}.{key}" if name else str(key))
    elif hasattr(batch, "detach"):
        yield name, batch.detach().cpu().numpy()
    elif isinstance(batch, np.ndarray) and batch.dtype.kind in "biuf":
        yield name, batch


def _origin(batch: Any, weights: Iterable[Tensor], figures: Mapping[str, Tensor]) -> tuple[str, float]:
    """The first thing that is not finite, in the order of cause and effect."""
    import torch

    bad_arrays = {
        name: float(array[~np.isfinite(array)].flat[0])
        for name, array in batch_arrays(batch)
        if array.dtype.kind == "f" and not np.isfinite(array).all()
    }
    given = [name for name in bad_arrays if name.split(".")[-1] not in COMPUTED]
    if not given:
        for tensor in weights:
            bad = ~torch.isfinite(tensor.detach())
            if bad.any():
                return "weight", float(tensor.detach()[bad][0])
    if bad_arrays:
        first = (given or list(bad_arrays))[0]
        field = first.split(".")[0]
        return SPOKEN.get(field, field) + " in the batch", bad_arrays[first]
    name = next((name for name, figure in figures.items() if not torch.isfinite(figure).all()), "sum of figures")
    return name, float(figures[name].detach()) if name in figures else math.inf


def _arrays(rows: Obs) -> Iterable[Array]:
    return rows.values() if isinstance(rows, dict) else (rows,)


def _tensors(value: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _tensors(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _tensors(inner, f"{path}[{index}]")
    elif hasattr(value, "is_floating_point"):
        yield path, value
