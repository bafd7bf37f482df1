"""Optimizers: RMSprop as DeepMind and as TensorFlow had it, and torch's own by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn


class DeepMindRMSprop(torch.optim.Optimizer):
    """Centered RMSprop as released with Nature DQN: no momentum on the step, eps inside the root.

    m ← βm + (1-β)g    v ← αv + (1-α)g²    θ ← θ - lr · g / √(v - m² + eps)

    Torch's own ``RMSprop(centered=True)`` adds eps outside the root, which makes early steps several
    times longer. ``eps`` is meant for gradients *summed* over the batch.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 2.5e-4,
        decay: float = 0.95,
        momentum: float = 0.95,
        eps: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "momentum": momentum, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = _evaluate(closure)
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            grads = [param.grad for param in params]
            means, squares = zip(*(self._moments(param) for param in params), strict=True)
            torch._foreach_lerp_(means, grads, 1 - group["momentum"])
            torch._foreach_mul_(squares, group["decay"])
            torch._foreach_addcmul_(squares, grads, grads, 1 - group["decay"])
            roots = torch._foreach_addcmul(squares, means, means, -1)
            torch._foreach_add_(roots, group["eps"])
            torch._foreach_sqrt_(roots)
            torch._foreach_addcdiv_(params, grads, roots, -group["lr"])
        return loss

    def _moments(self, param: Tensor) -> tuple[Tensor, Tensor]:
        state = self.state[param]
        if not state:
            state["mean"] = torch.zeros_like(param, memory_format=torch.preserve_format)
            state["square"] = torch.zeros_like(param, memory_format=torch.preserve_format)
        return state["mean"], state["square"]


def rmsprop_step(
    params: list[Tensor], grads: list[Tensor], squares: list[Tensor], *, lr: float, decay: float, eps: float
) -> None:
    """Change ``params`` and ``squares`` by one step."""
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

    def __init__(self, params: Iterable[Tensor], lr: float, decay: float, eps: float) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "eps": eps})
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
            rmsprop_step(params, grads, squares, lr=group["lr"], decay=group["decay"], eps=group["eps"])
        return loss


def _evaluate(closure: Callable[[], Any] | None) -> Any:
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


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
    """The optimizer a preset names; ``fused`` chooses Adam's one-kernel form where torch has it."""
    params = list(network.parameters())
    if name == "adam":
        return torch.optim.Adam(params, lr=lr, eps=adam_eps, fused=fused and params[0].device.type in ("cpu", "cuda"))
    if name == "torch_rmsprop":
        return torch.optim.RMSprop(params, lr=lr, alpha=rmsprop_decay, eps=rmsprop_eps, centered=True)
    if name == "deepmind_rmsprop":
        return DeepMindRMSprop(params, lr, rmsprop_decay, rmsprop_momentum, rmsprop_eps)
    raise ValueError(f"unknown optimizer {name!r}")
