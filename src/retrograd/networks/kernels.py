"""The C extension of the networks, where it was built, and pictures as the first convolution wants them."""

from __future__ import annotations

import torch
from torch import Tensor

from retrograd.core.compiled import load_extension

KERNELS = load_extension("retrograd.networks._kernels", version=3)


def scale_pixels(obs: Tensor, *, channels_last: bool) -> Tensor:
    """uint8 [B, C, H, W] → float32 in [0, 1], in the layout that the convolutions want."""
    if KERNELS is None or not _in_reach(obs, channels_last):
        return _as_floats(obs, channels_last).mul_(1 / 255)
    scaled = torch.empty(obs.shape, memory_format=torch.channels_last)
    KERNELS.pixels(obs.numpy(), obs.shape[1], 1 / 255, scaled.permute(0, 2, 3, 1).numpy())
    return scaled


def standardize_pixels(obs: Tensor, gain: Tensor, shift: Tensor, limit: float, *, channels_last: bool) -> Tensor:
    """uint8 [B, C, H, W] → byte · gain + shift, of each place [H, W], cut at ±limit."""
    if KERNELS is None or not _in_reach(obs, channels_last):
        return _as_floats(obs, channels_last).mul_(gain).add_(shift).clamp_(-limit, limit)
    channels, done = obs.shape[1], torch.empty(obs.shape, memory_format=torch.channels_last)
    places = [tensor.unsqueeze(-1).expand(-1, -1, channels).contiguous().numpy() for tensor in (gain, shift)]
    KERNELS.standardized(obs.numpy(), channels, *places, limit, done.permute(0, 2, 3, 1).numpy())
    return done


def _in_reach(obs: Tensor, channels_last: bool) -> bool:
    """Whether the extension reads such pictures."""
    # each picture in one piece is enough: the stacks of a batch from a replay share the frames of one window
    bytes_here = obs.dtype == torch.uint8 and obs.device.type == "cpu" and obs[:1].is_contiguous()
    return channels_last and bytes_here and not torch.compiler.is_compiling()


def _as_floats(obs: Tensor, channels_last: bool) -> Tensor:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    # bytes first, as torch is slow when it changes type and order at once
    return obs.contiguous(memory_format=layout).to(torch.float32, memory_format=layout, copy=True)
