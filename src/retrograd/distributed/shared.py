"""Parameters in shared memory, and a learner that computes gradients on its own copy and applies them there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from retrograd.agents.policy import Evaluated, PolicyLoss
from retrograd.core.errors import RetrogradError
from retrograd.core.gates import require_finite
from retrograd.core.schedules import Schedule
from retrograd.core.types import Rollout, Update
from retrograd.networks.optimizers import TensorFlowRMSprop, rmsprop_step

LOCK_SECONDS = 30.0


class SharedWeights:
    """A network's weights where other processes see them; sent to a process, they stay the same memory."""

    def __init__(self, network: nn.Module, context: Any, *, updates: int = 0) -> None:
        self.weights: list[Tensor] = [_share(param.detach().to("cpu", copy=True)) for param in network.parameters()]
        self.updates = context.Value("q", updates, lock=False)
        self.lock = context.Lock()

    @torch.no_grad()
    def copy_to(self, network: nn.Module) -> int:
        """Make ``network`` equal to the shared weights of this moment; returns the updates they had."""
        with self.held():
            torch._foreach_copy_(list(network.parameters()), self.weights)
            return int(self.updates.value)

    @torch.no_grad()
    def publish(self, network: nn.Module, updates: int) -> None:
        """Make the shared weights equal to ``network``."""
        with self.held():
            torch._foreach_copy_(self.weights, list(network.parameters()))
            self.updates.value = updates

    @contextmanager
    def held(self) -> Iterator[None]:
        """A process that was killed while it held the lock never lets go: nobody waits for it for ever."""
        if not self.lock.acquire(timeout=LOCK_SECONDS):
            raise RetrogradError(f"the shared weights stayed locked for {LOCK_SECONDS:g} s: a worker was lost")
        try:
            yield
        finally:
            self.lock.release()


class SharedParameters(SharedWeights):
    """The weights and the statistics of their optimizer, for workers that all change them."""

    def __init__(self, network: nn.Module, optimizer: TensorFlowRMSprop, context: Any, *, updates: int = 0) -> None:
        super().__init__(network, context, updates=updates)
        # the optimizer's own tensors move, so that its state dict shows what the workers made of them
        self.squares: list[Tensor] = [_share(optimizer.state[param]["square"]) for param in network.parameters()]
        group = optimizer.param_groups[0]
        self.decay, self.eps = float(group["decay"]), float(group["eps"])

    @torch.no_grad()
    def apply(self, gradients: list[Tensor], lr: float) -> None:
        """One step of RMSprop, under the lock: no update is lost, and it is held for a moment only."""
        with self.held():
            rmsprop_step(self.weights, gradients, self.squares, lr=lr, decay=self.decay, eps=self.eps)
            self.updates.value += 1


class SharedLearner:
    """Goes over a rollout once: gradients of the local network, applied to the shared weights, which are taken over.

    ``global_step`` drives the schedules: what all workers have played together.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: PolicyLoss,
        shared: SharedParameters,
        *,
        lr: Schedule,
        max_grad_norm: float | None,
        global_step: Callable[[], int],
    ) -> None:
        self.network, self.loss, self.shared, self.lr = network, loss, shared, lr
        self.max_grad_norm, self.global_step = max_grad_norm, global_step
        self._params = list(network.parameters())
        shared.copy_to(network)

    @property
    def updates(self) -> int:
        return int(self.shared.updates.value)

    def learning_rate(self, step: int) -> float:
        return self.lr(step)

    def learn(self, minibatches: Callable[[], Iterable[Evaluated]], steps: Rollout, *, step: int) -> Update:
        begun = self.global_step()
        metrics: dict[str, Tensor | float] = {}
        for policy, value, batch in minibatches():
            out = self.loss(policy, value, batch, step=begun)
            # gradients of its own, made anew: one that others hold would add up over the rollouts
            gradients = list(torch.autograd.grad(out.loss, self._params))
            grad_norm = torch.nn.utils.get_total_norm(gradients)
            require_finite(begun, batch=batch, weights=self._params, loss=out.loss, gradient=grad_norm)
            if self.max_grad_norm is not None:
                torch._foreach_mul_(gradients, (self.max_grad_norm / (grad_norm + 1e-6)).clamp(max=1.0))
            self.shared.apply(gradients, self.lr(begun))
            self.shared.copy_to(self.network)
            metrics = {**out.metrics, "loss": out.loss.detach(), "approx_kl": out.approx_kl, "grad_norm": grad_norm}
        return Update(metrics)

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """A worker has nothing of its own."""


def _share(tensor: Tensor) -> Tensor:
    """The same tensor, its memory moved to where other processes can see it."""
    moved: Tensor = tensor.share_memory_()  # type: ignore[no-untyped-call]
    return moved
