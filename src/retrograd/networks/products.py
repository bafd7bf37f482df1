"""Products with large weights: torch's own, which are MKL's on a processor, or oneDNN's; in float32 or half precision.

On two cores of a Zen 4 a linear layer of 3136 × 512 takes 0.56 to 0.82 times as long with oneDNN for 32 rows and 0.70
to 0.84 times for 256, forward and in both directions backward. Both add up in their own order, so last digits differ.
In bfloat16 it takes half as long again, if the weights need not be rounded for each product.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

FEWEST_WEIGHTS = 1 << 17  # smaller layers take little time, and were not measured


def lowered(dtype: torch.dtype | None, tensor: Tensor) -> AbstractContextManager[None]:
    """Layers inside compute in ``dtype`` on the tensor's device, from weights that stay as they are."""
    return nullcontext() if dtype is None else torch.autocast(tensor.device.type, dtype)


class Multiplying(nn.Module):
    """A layer that can be told who multiplies, and in which precision."""

    onednn = False
    hidden = False  # further layers follow, so that nothing is read from its numbers directly
    compute_dtype: torch.dtype | None = None  # of a hidden layer outside of encoders; None: as round it

    def product(self, features: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        with lowered(self.compute_dtype, features):
            product = linear(features, rounded(weight), bias, onednn=self.onednn)
        return product if self.compute_dtype is None else product.float()


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


def rounded(weight: Tensor) -> Tensor:
    """A large weight as autocast would round it, on a processor: once for each change of it, not for each product.

    The copy stays with the parameter, and goes where that is copied or saved no more than any attribute of a tensor.
    """
    if weight.numel() < FEWEST_WEIGHTS or not isinstance(weight, nn.Parameter) or weight.device.type != "cpu":
        return weight
    if not torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return weight
    dtype = torch.get_autocast_dtype("cpu")
    made_of = (dtype, weight.data_ptr(), weight._version)
    kept: tuple[Any, Tensor] | None = getattr(weight, "rounded", None)
    if kept is None or kept[0] != made_of:
        kept = (made_of, weight.detach().to(dtype))
        weight.rounded = kept  # type: ignore[attr-defined]
    if not (torch.is_grad_enabled() and weight.requires_grad):
        return kept[1]
    copy: Tensor = _Rounded.apply(weight, kept[1])  # type: ignore[no-untyped-call]
    return copy


class _Rounded(torch.autograd.Function):
    """The copy, as if it had just been made: its slope is that of the weight."""

    @staticmethod
    def forward(_ctx: Any, _weight: Tensor, copy: Tensor) -> Tensor:
        return copy.detach()

    @staticmethod
    @once_differentiable
    def backward(_ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        return slope.float(), None


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
