"""An update that is recorded once and then replayed: hundreds of launches become one (a CUDA graph).

A graph reads and writes the memory it was recorded with. So each batch is copied into static buffers, the gradients
stay where they are from one replay to the next, and what a replay gives is copied before the next one overwrites it.
Nothing may change in a recording but numbers in that memory: no noise drawn on the host, no figure looked at.

Before it is used, a recording is compared with the same work done without it, on a batch it was not recorded with.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from retrograd.core.errors import RetrogradError
from retrograd.core.types import Transitions

Figures = dict[str, Tensor]
Compute = Callable[[Transitions], Figures]
Work = Callable[[], Figures]
Record = Callable[[Work], tuple[Callable[[], Any], Figures]]  # how to replay it, and where its figures will be

WARM_UP_RUNS = 3
# how far a figure may be off, as a share of its norm: kernels may be chosen anew for a graph, and last digits differ
TOLERANCE, HALF_TOLERANCE, ABSOLUTE = 1e-2, 1e-1, 1e-6


class Captured:
    """Called with a batch, gives what ``compute`` gives; ``gradients`` tells where its gradients are."""

    def __init__(
        self,
        compute: Compute,
        gradients: Callable[[], list[Tensor]],
        record: Record | None = None,
        *,
        tolerance: float = TOLERANCE,
    ) -> None:
        self._compute, self._gradients, self._tolerance = compute, gradients, tolerance
        self._record = record_cuda if record is None else record
        self._static: Transitions | None = None
        self._replay: Callable[[], Any] | None = None
        self._figures: Figures = {}

    def __call__(self, batch: Transitions) -> Figures:
        if self._replay is None or self._static is None:
            self._capture(batch)
        assert self._static is not None
        assert self._replay is not None
        copy_batch(self._static, batch)
        self._replay()
        return {name: figure.clone() for name, figure in self._figures.items()}

    def _capture(self, batch: Transitions) -> None:
        static, other = clone_batch(batch), altered_batch(batch)
        expected = {name: tensor.clone() for name, tensor in self._named(self._compute(other)).items()}
        replay, figures = self._record(lambda: self._compute(static))
        for tensor in self._named(figures).values():  # a recording that does nothing must not be found to be right
            tensor.detach().fill_(float("nan"))
        copy_batch(static, other)
        replay()
        found = self._named(figures)
        for name, tensor in expected.items():
            self._compare(name, found[name].detach(), tensor.detach())
        self._static, self._replay, self._figures = static, replay, figures

    def _named(self, figures: Figures) -> Figures:
        return figures | {f"gradient {number}": gradient for number, gradient in enumerate(self._gradients())}

    def _compare(self, name: str, found: Tensor, expected: Tensor) -> None:
        off, size = float((found - expected).norm()), float(expected.norm())
        # what is not finite is the failure gate's; written so that a NaN is never near
        if math.isfinite(size) and not off <= self._tolerance * size + ABSOLUTE:
            raise RetrogradError(
                f"hardware.cuda_graph: the recorded update gives another {name} (off by {off:.3g}, and its norm is "
                f"{size:.3g}) than the same update without recording; use hardware.cuda_graph=false and report it"
            )


def record_cuda(work: Work) -> tuple[Callable[[], Any], Figures]:
    """Record ``work`` as a CUDA graph, after some runs of it in which libraries make up their minds."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP_RUNS):
            work()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        figures = work()
    return graph.replay, figures


def clone_batch(batch: Transitions) -> Transitions:
    """The same batch in memory of its own; ``index`` belongs to the replay, and no update reads it."""
    return replace(batch, **{name: _map(value, Tensor.clone) for name, value in _tensors(batch).items()})


def altered_batch(batch: Transitions) -> Transitions:
    """One that no update gives the same figures for: other rewards, and every action in another row's state."""
    return replace(batch, obs=_map(batch.obs, lambda rows: rows.roll(1, 0)), reward=batch.reward + 1)


def copy_batch(static: Transitions, batch: Transitions) -> None:
    """Put a batch of the same shapes where the recording reads it."""
    new = _tensors(batch)
    for name, old in _tensors(static).items():
        _copy(old, new[name])


def _tensors(batch: Transitions) -> dict[str, Any]:
    return {field.name: getattr(batch, field.name) for field in fields(batch) if field.name != "index"}


def _map(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    return {key: change(one) for key, one in value.items()} if isinstance(value, dict) else change(value)


def _copy(old: Any, new: Any) -> None:
    if isinstance(old, dict):
        for key, one in old.items():
            _copy(one, new[key])
    elif old.shape != new.shape:
        raise RetrogradError(f"hardware.cuda_graph: a batch of {tuple(new.shape)} after one of {tuple(old.shape)}")
    else:
        old.copy_(new, non_blocking=True)
