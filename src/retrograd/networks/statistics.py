"""What a screen usually looks like: mean and deviation of each of its places, learned from what was seen.

Divided by its own deviation, the place where something rarely happens speaks loudest when it does: the ball of Pong is
two pixels of 7,056, and becomes the brightest thing on the screen.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from retrograd.networks.kernels import standardize_pixels

LEAST_VARIANCE = 1e-5  # of pixels in [0, 1]: those that never change stay small
LIMIT = 5.0  # deviations; anything further counts as this
MOST_FRAMES = 512  # of a batch: evenly spread, more tell nothing new


class ScreenStatistics(nn.Module):
    """(x - mean) / deviation for each place [H, W], the same for all frames of a stack, within ±5.

    They stand still until ``see`` is called. A policy is learned from with the statistics that it was played with.
    """

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.mean: Tensor
        self.variance: Tensor
        self.frames: Tensor
        self.register_buffer("mean", torch.zeros(height, width))
        self.register_buffer("variance", torch.ones(height, width))
        self.register_buffer("frames", torch.zeros((), dtype=torch.int64))

    def forward(self, obs: Tensor, *, channels_last: bool) -> Tensor:
        """[B, C, H, W] uint8 → float32, in the layout that the convolutions want."""
        gain = torch.rsqrt(self.variance + LEAST_VARIANCE)
        return standardize_pixels(obs, gain / 255, -self.mean * gain, LIMIT, channels_last=channels_last)

    @torch.no_grad()
    def see(self, obs: Tensor) -> None:
        """Add the newest frames of stacks [..., C, H, W] uint8 to what is known."""
        newest = obs[..., -1, :, :].flatten(0, -3)
        newest = newest[:: -(-len(newest) // MOST_FRAMES)].float().div_(255)
        variance, mean = torch.var_mean(newest, 0, correction=0)
        new, old = len(newest), int(self.frames)
        share, shift = new / (old + new), mean - self.mean
        self.frames += new
        if not old:
            self.mean.copy_(mean)
            self.variance.copy_(variance)
            return
        self.variance.lerp_(variance, share).addcmul_(shift, shift, value=share * (1 - share))
        self.mean.add_(shift, alpha=share)


def share_statistics(network: nn.Module, copy: nn.Module) -> None:
    """Let a copy of a network see the screen as the network does, now and later."""
    for (_, module), (_, twin) in zip(network.named_modules(), copy.named_modules(), strict=True):
        for name, child in module.named_children():
            if isinstance(child, ScreenStatistics):
                setattr(twin, name, child)


def screen_statistics(networks: Iterable[nn.Module]) -> list[ScreenStatistics]:
    """Those of all networks, each once."""
    found = [module for network in networks for module in network.modules() if isinstance(module, ScreenStatistics)]
    return list(dict.fromkeys(found))
