"""The C extension of the networks, where it was built, and pictures as the first convolution wants them."""

from __future__ import annotations

import importlib
from types import ModuleType

import torch
from torch import Tensor

BUILT_FOR = 1  # a build left over from another version of the sources is not used


def load_kernels() -> ModuleType | None:
    """The extension, or None where no compiler was at hand or the processor lacks its instructions."""
    try:
        kernels = importlib.import_module("retrograd.networks._kernels")
    except ImportError:
        return None
    return kernels if kernels.VERSION == BUILT_FOR and kernels.USABLE else None


KERNELS = load_kernels()


def scale_pixels(obs: Tensor, *, channels_last: bool) -> Tensor:
    """uint8 [B, C, H, W] → float32 in [0, 1], in the layout that the convolutions want."""
    bytes_here = obs.dtype == torch.uint8 and obs.device.type == "cpu" and obs.is_contiguous()
    if KERNELS is None or not channels_last or not bytes_here or torch.compiler.is_compiling():
        layout = torch.channels_last if channels_last else torch.contiguous_format
        # bytes first, as torch is slow when it changes type and order at once
        return obs.contiguous(memory_format=layout).to(torch.float32, memory_format=layout, copy=True).mul_(1 / 255)
    scaled = torch.empty(obs.shape, memory_format=torch.channels_last)
    KERNELS.pixels(obs.numpy(), obs.shape[1], 1 / 255, scaled.permute(0, 2, 3, 1).numpy())
    return scaled
