"""The C extension of the networks, where it was built, and pictures as the first convolution wants them."""

from __future__ import annotations

import torch
from torch import Tensor

from retrograd.core.compiled import load_extension

KERNELS = load_extension("retrograd.networks._kernels", version=2)


def scale_pixels(obs: Tensor, *, channels_last: bool) -> Tensor:
    """uint8 [B, C, H, W] → float32 in [0, 1], in the layout that the convolutions want."""
    # each picture in one piece is enough: the stacks of a batch from a replay share the frames of one window
    bytes_here = obs.dtype == torch.uint8 and obs.device.type == "cpu" and obs[:1].is_contiguous()
    if KERNELS is None or not channels_last or not bytes_here or torch.compiler.is_compiling():
        layout = torch.channels_last if channels_last else torch.contiguous_format
        # bytes first, as torch is slow when it changes type and order at once
        return obs.contiguous(memory_format=layout).to(torch.float32, memory_format=layout, copy=True).mul_(1 / 255)
    scaled = torch.empty(obs.shape, memory_format=torch.channels_last)
    KERNELS.pixels(obs.numpy(), obs.shape[1], 1 / 255, scaled.permute(0, 2, 3, 1).numpy())
    return scaled
