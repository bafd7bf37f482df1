"""Products with large weights: torch's own, which are MKL's on a processor, or oneDNN's.

On two cores of a Zen 4 a linear layer of 3136 × 512 takes 0.56 to 0.82 times as long with oneDNN for 32 rows and 0.70
to 0.84 times for 256, forward and in both directions backward. Both add up in their own order, so last digits differ.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

FEWEST_WEIGHTS = 1 << 17  # smaller layers take little time, and were not measured


class Multiplying(nn.Module):
    """A layer that can be told who multiplies."""

    onednn = False

    def product(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return linear(features, weight, bias, onednn=self.onednn)


class Linear(Multiplying, nn.Linear):
    """``nn.Linear`` with that choice; its weights and their names are the same."""

    def forward(self, features: Tensor) -> Tensor:
        return self.product(features, self.weight, self.bias)


def linear(features: Tensor, weight: Tensor, bias: Tensor | None, *, onednn: bool) -> Tensor:
    """``F.linear``; by oneDNN where that is asked for and float32 matrices on a processor are what there is."""
    if not onednn or weight.numel() < FEWEST_WEIGHTS or not _plain(features) or not _plain(weight):
        return F.linear(features, weight, bias)
    if torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return F.linear(features, weight, bias)
    if not torch.is_grad_enabled():
        return _multiply(features, weight, bias)
    product: Tensor = _OneDNN.apply(features, weight, bias)  # type: ignore[no-untyped-call]
    return product


def use_onednn(network: nn.Module, chosen: bool) -> None:
    """Tell every layer that has the choice."""
    for module in network.modules():
        if isinstance(module, Multiplying):
            module.onednn = chosen


def _plain(tensor: Tensor) -> bool:
    return tensor.dim() == 2 and tensor.dtype == torch.float32 and tensor.device.type == "cpu"


def _multiply(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows · weightᵀ + bias."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(rows, weight, bias, "none", [], "")
    return product


class _OneDNN(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(features, weight)
        return _multiply(features, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        features, weight = ctx.saved_tensors
        of_features, of_weight, of_bias = ctx.needs_input_grad
        return (
            _multiply(slope, weight.t()) if of_features else None,
            _multiply(slope.t(), features.t()) if of_weight else None,
            slope.sum(0) if of_bias else None,
        )
