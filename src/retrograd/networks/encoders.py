"""Encoders: observation → features [B, width]. Which one follows from the observation's shape.

Images arrive as uint8 and become floats in [0, 1] inside the network, so that a batch crosses to
the device as bytes and is scaled there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec

Observation = Tensor | dict[str, Tensor]


class NatureCNN(nn.Module):
    """The encoder of Mnih et al. 2015: 32×8×8/4, 64×4×4/2, 64×3×3/1, then ``width`` units.

    ``width=None`` leaves the last layer out, for heads whose streams bring their own.
    Weights and biases start uniform in ±1/√fan_in, which is torch's own default and DeepMind's.
    """

    def __init__(self, spec: ArraySpec, width: int | None = 512, *, channels_last: bool = True) -> None:
        super().__init__()
        channels, height, image_width = spec.shape
        self.channels_last = channels_last
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels, 32, 8, 4), nn.ReLU(),
            nn.Conv2d(32, 64, 4, 2), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1), nn.ReLU(),
        )  # fmt: skip
        with torch.no_grad():
            flat = self.convolutions(torch.zeros(1, channels, height, image_width)).flatten(1).shape[1]
        self.project = nn.Sequential(nn.Linear(flat, width), nn.ReLU()) if width else nn.Sequential()
        self.width = width or flat
        if channels_last:
            self.convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, obs: Tensor) -> Tensor:
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        pixels = obs.to(torch.float32, memory_format=layout).mul_(1 / 255)  # [B, C, H, W]
        features = self.convolutions(pixels)
        return self.project(features.flatten(1))  # flattened in channel, row, column order in both layouts


class MLP(nn.Module):
    """Fully connected layers for vector observations; several named vectors are joined in name order."""

    def __init__(self, spec: ArraySpec | dict[str, ArraySpec], hidden: Sequence[int] = (128, 128)) -> None:
        super().__init__()
        specs = spec if isinstance(spec, dict) else {"": spec}
        self.names = sorted(specs)
        size = sum(int(np.prod(specs[name].shape)) for name in self.names)
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(size, width), nn.ReLU()]
            size = width
        self.layers = nn.Sequential(*layers)
        self.width = size

    def forward(self, obs: Observation) -> Tensor:
        vectors = [obs[name] for name in self.names] if isinstance(obs, dict) else [obs]
        return self.layers(torch.cat([vector.float().flatten(1) for vector in vectors], dim=1))


def is_image(spec: ArraySpec | dict[str, ArraySpec]) -> bool:
    """Bytes with two spatial axes are pixels; everything else is a vector."""
    return isinstance(spec, ArraySpec) and len(spec.shape) == 3 and spec.dtype == np.uint8


def make_encoder(
    spec: ArraySpec | dict[str, ArraySpec], *, width: int | None = 512, channels_last: bool = True
) -> NatureCNN | MLP:
    """Pixels get the convolutional encoder, vectors the fully connected one."""
    if is_image(spec):
        assert isinstance(spec, ArraySpec)
        if min(spec.shape[1:]) < 36:
            raise UsageError(
                f"images of {spec.shape[1]}×{spec.shape[2]} are too small for the Nature encoder: at least 36×36"
            )
        return NatureCNN(spec, width, channels_last=channels_last)
    return MLP(spec)
