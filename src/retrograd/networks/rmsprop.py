"""RMSprop as TensorFlow had it, which the published settings of A2C and A3C are made for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor


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
    """v ← αv + (1-α)g²    θ ← θ - lr · g / √(v + eps), with v = 1 at first.

    Torch's own starts at v = 0 and adds eps outside the root, which makes the first steps far longer.
    """

    def __init__(self, params: Iterable[Tensor], lr: float, decay: float, eps: float) -> None:
        super().__init__(params, {"lr": lr, "decay": decay, "eps": eps})
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["square"] = torch.ones_like(param, memory_format=torch.preserve_format)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [param for param in group["params"] if param.grad is not None]
            grads = [param.grad for param in params]
            squares = [self.state[param]["square"] for param in params]
            rmsprop_step(params, grads, squares, lr=group["lr"], decay=group["decay"], eps=group["eps"])
        return loss
