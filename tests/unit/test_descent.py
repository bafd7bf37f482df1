"""Two optimizers over one network: what each of them does, beside one optimizer for the sum."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from retrograd.agents.descent import Descent, SplitDescent, clip


class Twofold(nn.Module):
    """A trunk that two heads share."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.left, self.right = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 1)

    def losses(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        hidden = torch.tanh(self.trunk(inputs))
        return self.left(hidden).square().mean(), 100 * (self.right(hidden) - 3).square().mean()


def made() -> tuple[Twofold, Tensor]:
    torch.manual_seed(0)
    return Twofold(), torch.randn(16, 4)


def flat(network: nn.Module) -> Tensor:
    return torch.cat([param.detach().flatten() for param in network.parameters()])


def test_without_moments_it_is_the_sum() -> None:
    """Plain descent is linear in the gradient, so two steps at the same weights are one step down the sum."""
    network, inputs = made()
    joint = copy.deepcopy(network)
    one = Descent(torch.optim.SGD(joint.parameters(), lr=1e-3), joint.parameters(), max_grad_norm=None)
    two = SplitDescent(
        [torch.optim.SGD(network.parameters(), lr=1e-3) for _ in range(2)], network.parameters(), max_grad_norm=None
    )
    for _ in range(5):
        norm = one.backward(sum(joint.losses(inputs), torch.zeros(())))
        one.step(norm)
        two.step(two.backward(*network.losses(inputs)))
    assert torch.allclose(flat(network), flat(joint), atol=1e-6)


def test_a_large_loss_takes_nothing_from_a_small_one() -> None:
    """The left loss moves the trunk as it would alone, however large the right one is."""
    network, inputs = made()
    alone = copy.deepcopy(network)
    before = flat(network.trunk)
    optimizers = [torch.optim.Adam(network.parameters(), lr=1e-3), torch.optim.SGD(network.parameters(), lr=0.0)]
    two = SplitDescent(optimizers, network.parameters(), max_grad_norm=None)
    two.step(two.backward(*network.losses(inputs)))
    left, _ = alone.losses(inputs)
    one = Descent(torch.optim.Adam(alone.parameters(), lr=1e-3), alone.parameters(), max_grad_norm=None)
    one.step(one.backward(left))
    assert torch.equal(flat(network.trunk), flat(alone.trunk))
    assert not torch.equal(flat(network.trunk), before)


def test_each_gradient_is_clipped_by_its_own_norm() -> None:
    network, inputs = made()
    optimizers = [torch.optim.SGD(network.parameters(), lr=1.0), torch.optim.SGD(network.parameters(), lr=0.0)]
    two = SplitDescent(optimizers, network.parameters(), max_grad_norm=0.01)
    before = flat(network)
    together = two.backward(*network.losses(inputs))
    two.step(together)
    assert (flat(network) - before).norm() == pytest.approx(0.01, rel=1e-3)
    assert together > 1  # the right one's is in it


@pytest.mark.parametrize("max_norm", [None, 0.5, 1.0, 1.0 - 5e-7, 1.0 + 5e-7, 1.0 + 2e-6, 2.0])
def test_clipping_gives_what_torch_gives_and_leaves_short_gradients_alone(max_norm: float | None) -> None:
    params = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(1))]
    expected = [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(1))]
    for ours, theirs in zip(params, expected, strict=True):
        ours.grad = torch.full_like(ours, 0.5)
        theirs.grad = torch.full_like(theirs, 0.5)
    norm = torch.nn.utils.get_total_norm([param.grad for param in params if param.grad is not None])
    untouched = [param.grad._version for param in params if param.grad is not None]
    clip(params, norm, max_norm)
    if max_norm is not None:
        torch.nn.utils.clip_grads_with_norm_(expected, max_norm, norm)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(params, expected, strict=True))
    written = [param.grad._version for param in params if param.grad is not None] != untouched
    assert written == (max_norm is not None and max_norm < 1.0 + 2e-6)
