"""An update that is recorded once and then replayed: hundreds of launches become one (a CUDA graph).

A graph reads and writes the memory it was recorded with. So each batch is copied into static buffers, the gradients
stay where they are from one replay to the next, and what a replay gives is copied before the next one overwrites it.
Nothing may change in a recording but numbers in that memory: no noise drawn on the host, no figure looked at.

Before it is used, a recording is compared with the same work done without it.
"""

from __future__ import annotations

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
RELATIVE, ABSOLUTE = 1e-2, 1e-4  # kernels may be chosen anew for a graph: last digits differ, no more


class Captured:
    """Called with a batch, gives what ``compute`` gives; ``gradients`` tells where its gradients are."""

    def __init__(self, compute: Compute, gradients: Callable[[], list[Tensor]], record: Record | None = None) -> None:
        self._compute, self._gradients = compute, gradients
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
        static = clone_batch(batch)
        expected = {name: figure.clone() for name, figure in self._compute(static).items()}
        expected |= {f"gradient {i}": gradient.clone() for i, gradient in enumerate(self._gradients())}
        replay, figures = self._record(lambda: self._compute(static))
        replay()
        found = figures | {f"gradient {i}": gradient for i, gradient in enumerate(self._gradients())}
        for name, tensor in expected.items():
            if not torch.allclose(found[name], tensor, rtol=RELATIVE, atol=ABSOLUTE, equal_nan=True):
                worst = float((found[name] - tensor).abs().max())
                raise RetrogradError(
                    f"hardware.cuda_graph: the recorded update gives another {name} (by up to {worst:.3g}) than the "
                    "same update without recording; use hardware.cuda_graph=false and report it"
                )
        self._static, self._replay, self._figures = static, replay, figures


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
