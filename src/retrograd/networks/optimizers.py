"""Optimizers: RMSprop as DeepMind and as TensorFlow had it, and torch's own by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from retrograd.core.types import Array
from retrograd.networks.kernels import KERNELS

PIECE = 1 << 15  # elements of weights, gradients and moments that stay in a core's cache together
MOST_THREADS = 2  # the extension works on one core, torch shares its operations out; where they meet is not measured


def flat_arrays(*tensors: Tensor) -> list[Array] | None:
    """The same memory as flat arrays, for tensors of float32 that lie alike in a host's memory; else None."""
    first = tensors[0]
    dense = first.is_contiguous() or (first.dim() == 4 and first.is_contiguous(memory_format=torch.channels_last))
    for tensor in tensors:
        if tensor.device.type != "cpu" or tensor.dtype != torch.float32 or tensor.stride() != first.stride():
            return None
    size = first.numel()
    return [tensor.detach().as_strided((size,), (1,)).numpy() for tensor in tensors] if dense else None


class Pieces:
    """Steps of RMSprop through the extension, a piece of memory at a time; its memory for the roots is kept."""

    def __init__(self) -> None:
        self._room = torch.empty(PIECE)
        self._root = self._room.numpy()

    def step(
        self, param: Tensor, grad: Tensor, square: Tensor, mean: Tensor | None = None, *, lr: float, **numbers: float
    ) -> bool:
        """One step of one tensor, centered where there is a ``mean``; False where there is no way to do it here."""
        if KERNELS is None or torch.get_num_threads() > MOST_THREADS:
            return False
        arrays = flat_arrays(param, grad, square, *(() if mean is None else (mean,)))
        if arrays is None:
            return False
        decay, eps = numbers["decay"], numbers["eps"]
        for begin in range(0, param.numel(), PIECE):
            weight, slope, squares, *means = (array[begin : begin + PIECE] for array in arrays)
            root = self._root[: len(weight)]
            if means:
                KERNELS.centered(slope, means[0], squares, root, decay, 1 - decay, 1 - numbers["momentum"], eps)
            else:
                KERNELS.plain(slope, squares, root, decay, 1 - decay, eps)
            self._room[: len(weight)].sqrt_()
            KERNELS.descend(slope, root, weight, lr)
        increment_version(param)  # torch has seen none of this, and others keep what they made of the weights
        return True


class DeepMindRMSprop(torch.optim.Optimizer):
    """Centered RMSprop as released with Nature DQN: no momentum on the step, eps inside the root.

    m ← βm + (1-β)g    v ← αv + (1-α)g²    θ ← θ - lr · g / √(v - m² + eps)

    Torch's own ``RMSprop(centered=True)`` adds eps outside the root, which makes early steps several
    times longer. ``eps`` is meant for gradients *summed* over the batch.

    ``fused`` does it in pieces that stay in the cache, where the extension was built; the bits are the same.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 2.5e-4,
        decay: float = 0.95,
        momentum: float = 0.95,
        eps: float = 0.01,
        *,
        fused: bool = True,
    ) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "momentum": momentum, "eps": eps})
        self._pieces = Pieces() if fused and momentum > 0.5 else None  # torch computes m in another way below

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = _evaluate(closure)
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            rest = [param for param in params if not self._step_in_pieces(param, group)]
            if rest:
                self._step_together(rest, group)
        return loss

    def _step_in_pieces(self, param: Tensor, group: dict[str, Any]) -> bool:
        if self._pieces is None or param.grad is None:
            return False
        mean, square = self._moments(param)
        numbers = {name: group[name] for name in ("lr", "decay", "momentum", "eps")}
        return self._pieces.step(param, param.grad, square, mean, **numbers)

    def _step_together(self, params: list[Tensor], group: dict[str, Any]) -> None:
        grads = [param.grad for param in params if param.grad is not None]
        means, squares = zip(*(self._moments(param) for param in params), strict=True)
        torch._foreach_lerp_(means, grads, 1 - group["momentum"])
        torch._foreach_mul_(squares, group["decay"])
        torch._foreach_addcmul_(squares, grads, grads, 1 - group["decay"])
        roots = torch._foreach_addcmul(squares, means, means, -1)
        torch._foreach_add_(roots, group["eps"])
        torch._foreach_sqrt_(roots)
        torch._foreach_addcdiv_(params, grads, roots, -group["lr"])

    def _moments(self, param: Tensor) -> tuple[Tensor, Tensor]:
        state = self.state[param]
        if not state:
            state["mean"] = torch.zeros_like(param, memory_format=torch.preserve_format)
            state["square"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        return state["mean"], state["square"]


def rmsprop_step(
    params: list[Tensor],
    grads: list[Tensor],
    squares: list[Tensor],
    *,
    lr: float,
    decay: float,
    eps: float,
    fused: bool = True,
) -> None:
    """Change ``params`` and ``squares`` by one step; ``fused``: in pieces where the extension was built."""
    pieces = Pieces() if fused else None
    rest = [
        tensors
        for tensors in zip(params, grads, squares, strict=True)
        if pieces is None or not pieces.step(*tensors, lr=lr, decay=decay, eps=eps)
    ]
    if not rest:
        return
    params, grads, squares = (list(tensors) for tensors in zip(*rest, strict=True))
    torch._foreach_mul_(squares, decay)
    torch._foreach_addcmul_(squares, grads, grads, 1 - decay)
    roots = torch._foreach_add(squares, eps)
    torch._foreach_sqrt_(roots)
    torch._foreach_addcdiv_(params, grads, roots, -lr)


class TensorFlowRMSprop(torch.optim.Optimizer):
    """The RMSprop that A2C's and A3C's published settings are made for.

    v ← αv + (1-α)g²    θ ← θ - lr · g / √(v + eps),  with v = 1 at first

    Torch's own starts at v = 0 and adds eps outside the root, which makes the first steps far longer.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, decay: float, eps: float, *, fused: bool = True) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "eps": eps})
        self._fused = fused
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["square"] = torch.ones_like(param, memory_format=torch.preserve_format)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = _evaluate(closure)
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            grads = [param.grad for param in params]
            squares = [self.state[param]["square"] for param in params]
            numbers = {name: group[name] for name in ("lr", "decay", "eps")}
            rmsprop_step(params, grads, squares, **numbers, fused=self._fused)
        return loss


def _evaluate(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


def make_adam(params: list[Tensor], *, lr: float, eps: float, fused: bool) -> torch.optim.Adam:
    """Torch's own; ``fused`` where it can be, in one pass through the memory."""
    fused = fused and params[0].device.type in ("cpu", "cuda")
    adam = torch.optim.Adam(params, lr=lr, eps=eps, fused=fused)
    if fused:  # its kernel changes the weights unnoticed, and others keep what they made of them
        adam.register_step_post_hook(lambda *_: increment_version(params))
    return adam


def make_optimizer(
    name: str,
    network: nn.Module,
    *,
    lr: float,
    adam_eps: float,
    rmsprop_decay: float,
    rmsprop_momentum: float,
    rmsprop_eps: float,
    fused: bool,
) -> torch.optim.Optimizer:
    """The optimizer a preset names; ``fused`` chooses the forms that go through the memory once."""
    params: list[Tensor] = list(network.parameters())
    if name == "adam":
        return make_adam(params, lr=lr, eps=adam_eps, fused=fused)
    if name == "torch_rmsprop":
        return torch.optim.RMSprop(params, lr=lr, alpha=rmsprop_decay, eps=rmsprop_eps, centered=True)
    if name == "deepmind_rmsprop":
        return DeepMindRMSprop(params, lr, rmsprop_decay, rmsprop_momentum, rmsprop_eps, fused=fused)
    raise ValueError(f"unknown optimizer {name!r}")
