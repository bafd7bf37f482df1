"""RMSprop: its formula, and that going through the memory in pieces changes no bit."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from retrograd.networks import optimizers
from retrograd.networks.optimizers import DeepMindRMSprop, TensorFlowRMSprop, flat_arrays

needs_extension = pytest.mark.skipif(optimizers.KERNELS is None, reason="the extension was not built")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights() -> list[torch.Tensor]:
    """Small, large, with a remainder, and convolutional in both layouts."""
    torch.manual_seed(3)
    convolution = torch.randn(48, 64, 7, 7)
    made = [torch.randn(5), torch.randn(100_077), torch.randn(300, 517), convolution]
    return [*made, convolution.clone(memory_format=torch.channels_last)]


def gradients(params: list[torch.Tensor], seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(param.shape).to(memory_format=_layout(param)) for param in params]


def _layout(param: torch.Tensor) -> torch.memory_format:
    return torch.contiguous_format if param.is_contiguous() else torch.channels_last


def test_deepmind_rmsprop_is_its_formula():
    param = torch.tensor([1.0, -2.0], requires_grad=True)
    optimizer = DeepMindRMSprop([param], lr=0.1, decay=0.9, momentum=0.8, eps=0.01)
    expected, mean, square = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2)
    for grad in (np.array([0.5, -1.0]), np.array([0.25, 3.0])):
        param.grad = torch.tensor(grad, dtype=torch.float32)
        optimizer.step()
        mean = 0.8 * mean + 0.2 * grad
        square = 0.9 * square + 0.1 * grad**2
        expected = expected - 0.1 * grad / np.sqrt(square - mean**2 + 0.01)
    np.testing.assert_allclose(param.detach().numpy(), expected, rtol=1e-6)


@needs_extension
def test_pieces_give_the_same_bits_as_one_operation_after_the_other():
    params = weights()
    fused, plain = (copy.deepcopy(params) for _ in range(2))
    one, two = DeepMindRMSprop(fused, fused=True), DeepMindRMSprop(plain, fused=False)
    for seed in range(4):
        for optimizer, tensors in ((one, fused), (two, plain)):
            for param, gradient in zip(tensors, gradients(params, seed), strict=True):
                param.grad = gradient
            optimizer.step()
    for mine, other, start in zip(fused, plain, params, strict=True):
        assert torch.equal(mine, other)
        assert not torch.equal(mine, start)
        assert torch.equal(one.state[mine]["square"], two.state[other]["square"])
        assert torch.equal(one.state[mine]["mean"], two.state[other]["mean"])


@needs_extension
def test_tensorflow_rmsprop_in_pieces_gives_the_same_bits():
    params = weights()
    mine, plain = (copy.deepcopy(params) for _ in range(2))
    optimizer = TensorFlowRMSprop(mine, 7e-4, 0.99, 1e-5)
    squares = [torch.ones_like(param) for param in plain]
    for seed in range(3):
        grads = gradients(params, seed)
        for param, gradient in zip(mine, grads, strict=True):
            param.grad = gradient
        optimizer.step()
        torch._foreach_mul_(squares, 0.99)
        torch._foreach_addcmul_(squares, grads, grads, 1 - 0.99)
        roots = torch._foreach_sqrt(torch._foreach_add(squares, 1e-5))
        torch._foreach_addcdiv_(plain, grads, roots, -7e-4)
    assert all(torch.equal(one, two) for one, two in zip(mine, plain, strict=True))


def test_only_tensors_that_lie_alike_are_taken_as_flat_memory():
    param = torch.randn(40, 30)
    assert flat_arrays(param, torch.randn(30, 40).T) is None
    assert flat_arrays(param, torch.randn(40, 30).double()) is None
    assert flat_arrays(param[:, ::2], param[:, ::2]) is None
    arrays = flat_arrays(param, torch.randn(40, 30))
    assert arrays is not None
    arrays[0][:7] = 0
    assert (param.view(-1)[:7] == 0).all()
    assert (param.view(-1)[7:] != 0).all()


def test_what_lies_otherwise_is_stepped_all_the_same():
    param = torch.ones(3, 2)
    param.grad = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]).T
    twin = torch.ones(3, 2)
    twin.grad = param.grad.contiguous()
    for one in (param, twin):
        DeepMindRMSprop([one]).step()
    assert torch.equal(param, twin)
    assert (param < 1).all()


@needs_extension
def test_arrays_that_do_not_fit_are_refused():
    steps, good = optimizers.KERNELS, np.zeros(4, np.float32)
    for bad in (np.zeros(3, np.float32), np.zeros(4), np.zeros((4, 4), np.float32)[:, 0]):
        with pytest.raises((ValueError, BufferError)):
            steps.plain(good, good, bad, 0.9, 0.1, 0.1)


def test_a_step_without_gradients_does_nothing():
    param = torch.ones(3, requires_grad=True)
    DeepMindRMSprop([param]).step()
    assert torch.equal(param, torch.ones(3))
