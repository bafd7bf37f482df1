"""Down the gradient: backward pass, norm, clipping and the optimizer's step, the same for every learner.

With a ``scaler`` the loss is multiplied before the backward pass, so that small gradients survive in float16. There an
overflow is no failure: the step is left out and the scale halved.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

LEAST_SCALE = 2.0**-10  # gradients that overflow at a scale this small are broken, not large
TINY = 1e-6  # what torch adds to a norm before it divides by it


class Descent:
    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        params: Iterable[Tensor],
        *,
        max_grad_norm: float | None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.optimizer, self.params, self.max_grad_norm, self.scaler = optimizer, list(params), max_grad_norm, scaler

    def backward(self, loss: Tensor) -> Tensor:
        """New gradients in place of the old; returns their norm before clipping."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
        else:
            self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            self.scaler.unscale_(self.optimizer)
        return torch.nn.utils.get_total_norm(self.gradients())

    def gradients(self) -> list[Tensor]:
        return [param.grad for param in self.params if param.grad is not None]

    def gated(self, grad_norm: Tensor) -> Tensor:
        """The norm as the failure gate should see it: 0 for an overflow that a smaller scale can mend."""
        if self.scaler is None or self.scaler.get_scale() <= LEAST_SCALE:
            return grad_norm
        return grad_norm.nan_to_num(nan=0.0, posinf=0.0)

    def step(self, grad_norm: Tensor) -> None:
        clip(self.params, grad_norm, self.max_grad_norm)
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)  # nothing, where a gradient overflowed
            self.scaler.update()

    def skip(self) -> None:
        """In place of a step: these gradients are not wanted."""
        if self.scaler is not None:
            self.scaler.update()  # else it refuses the next backward pass


class SplitDescent:
    """Several losses of one network, each with an optimizer of its own over all weights that it reaches.

    Adam measures a step by the gradients it has seen. In a sum the larger loss sets that measure for the weights both
    reach; apart, each loss moves them as far as its own rate says. All gradients are taken at the same weights, and
    each is clipped by its own norm. Costs one more backward pass for each further loss.
    """

    def __init__(
        self, optimizers: Sequence[torch.optim.Optimizer], params: Iterable[Tensor], *, max_grad_norm: float | None
    ) -> None:
        self.optimizers, self.params, self.max_grad_norm = optimizers, list(params), max_grad_norm
        self._gradients: list[tuple[Tensor | None, ...]] = []
        self._norms: list[Tensor] = []

    def backward(self, *losses: Tensor) -> Tensor:
        """The gradients of each loss; returns the norm of all of them together, before clipping."""
        last = len(losses) - 1
        self._gradients = [
            torch.autograd.grad(loss, self.params, retain_graph=number < last, allow_unused=True)
            for number, loss in enumerate(losses)
        ]
        self._norms = [
            torch.nn.utils.get_total_norm([gradient for gradient in part if gradient is not None])
            for part in self._gradients
        ]
        together: Tensor = torch.linalg.vector_norm(torch.stack(self._norms))
        return together

    def gated(self, grad_norm: Tensor) -> Tensor:
        """Nothing is scaled here, so no overflow can be mended."""
        return grad_norm

    def step(self, _grad_norm: Tensor) -> None:
        """Each part is clipped by the norm of its own gradients, not by that of all."""
        for optimizer, gradients, norm in zip(self.optimizers, self._gradients, self._norms, strict=True):
            for param, gradient in zip(self.params, gradients, strict=True):
                param.grad = gradient
            clip(self.params, norm, self.max_grad_norm)
            optimizer.step()

    def skip(self) -> None:
        """In place of a step: nothing is kept that the next backward pass would not replace."""


def clip(params: list[Tensor], norm: Tensor, max_norm: float | None) -> None:
    """Shorten the gradients of ``params`` to ``max_norm``; ``norm`` is what they have.

    One that is short enough would be multiplied by one. On the host that is seen at no cost and saves a way through all
    of the gradient's memory; to ask another device would make it wait.
    """
    if max_norm is None or (norm.device.type == "cpu" and max_norm / (norm + TINY) >= 1):
        return
    torch.nn.utils.clip_grads_with_norm_(params, max_norm, norm)
