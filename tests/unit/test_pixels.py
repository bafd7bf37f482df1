"""Pictures become floats in one pass, with the bits and the layout that torch's three passes give."""

import numpy as np
import pytest
import torch

from retrograd.networks import kernels
from retrograd.networks.kernels import scale_pixels

needs_extension = pytest.mark.skipif(kernels.KERNELS is None, reason="the extension was not built")


def plainly(obs: torch.Tensor, layout: torch.memory_format) -> torch.Tensor:
    return obs.to(torch.float32, memory_format=layout).mul_(1 / 255)


@pytest.mark.parametrize("with_extension", [pytest.param(True, marks=needs_extension), False])
@pytest.mark.parametrize("channels_last", [True, False])
@pytest.mark.parametrize(
    "shape", [(5, 4, 84, 84), (2, 1, 84, 84), (3, 3, 7, 9), (2, 4, 17, 31), (1, 4, 1, 1), (0, 4, 8, 8)]
)
def test_bits_and_layout_are_those_of_torch(shape, channels_last, with_extension, monkeypatch):
    if not with_extension:
        monkeypatch.setattr(kernels, "KERNELS", None)
    obs = torch.from_numpy(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))
    before = obs.clone()
    scaled = scale_pixels(obs, channels_last=channels_last)
    expected = plainly(obs, torch.channels_last if channels_last else torch.contiguous_format)
    assert torch.equal(scaled, expected)
    assert scaled.stride() == expected.stride()
    assert torch.equal(obs, before)


def test_pictures_that_lie_otherwise_or_are_floats_already_come_out_the_same():
    obs = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (4, 4, 8, 8), dtype=np.uint8))
    expected = plainly(obs, torch.channels_last)
    turned = obs.contiguous(memory_format=torch.channels_last)
    assert torch.equal(scale_pixels(turned, channels_last=True), expected)
    assert torch.equal(scale_pixels(obs[::2], channels_last=True), expected[::2])
    floats = obs.float()
    assert torch.equal(scale_pixels(floats, channels_last=True), expected)
    assert torch.equal(floats, obs.float())  # and are left alone


@needs_extension
def test_stacks_that_share_the_frames_of_a_window_need_no_copy(monkeypatch):
    """A replay hands out windows of one frame more than a stack; obs and next_obs are views of them."""
    windows = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, 5, 84, 84), dtype=np.uint8))
    stacks = windows[:, :4], windows[:, 1:]
    expected = [plainly(stack, torch.channels_last) for stack in stacks]
    monkeypatch.setattr(torch.Tensor, "contiguous", None)  # torch's way, which copies first, would fail here
    for stack, floats in zip(stacks, expected, strict=True):
        assert torch.equal(scale_pixels(stack, channels_last=True), floats)


@needs_extension
def test_arrays_that_do_not_fit_are_refused():
    pictures, out = np.zeros((2, 4, 3, 3), np.uint8), np.zeros((2, 3, 3, 4), np.float32)
    kernels.KERNELS.pixels(pictures, 4, 1.0, out)
    for bad in (
        (pictures.astype(np.float32), 4, 1.0, out),
        (pictures, 5, 1.0, out),
        (pictures, 0, 1.0, out),
        (pictures, 4, 1.0, out[:1]),
        (pictures, 4, 1.0, out.astype(np.float64)),
        (pictures[:, :, ::2], 4, 1.0, out),
    ):
        with pytest.raises((ValueError, BufferError)):
            kernels.KERNELS.pixels(*bad)
