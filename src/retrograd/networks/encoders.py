"""Encoders: observation → features [B, width]. Which one follows from the observation's shape.

Images arrive as uint8 and become floats in [0, 1] inside the network, so that a batch crosses to
the device as bytes and is scaled there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec
from retrograd.networks.kernels import scale_pixels
from retrograd.networks.layers import SpectralConv2d
from retrograd.networks.products import Linear, lowered
from retrograd.networks.statistics import ScreenStatistics

Observation = Tensor | dict[str, Tensor]


# channels, kernel, stride of each convolution
NATURE_FILTERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
SMALL_FILTERS = ((16, 8, 4), (32, 4, 2))  # Mnih et al. 2013, arXiv:1312.5602, and A3C's, with 256 units
# Ours, for processors: windows that do not overlap read each pixel once, and 32 channels fill a vector register
PATCH_FILTERS = ((32, 6, 6), (32, 3, 2))
FILTERS = {"nature": NATURE_FILTERS, "padded": NATURE_FILTERS, "small": SMALL_FILTERS, "patches": PATCH_FILTERS}


class PixelCNN(nn.Module):
    """Scaled pixels [B, C, H, W] through ``convolutions`` and a layer of ``width`` units; None leaves that one out."""

    def __init__(
        self,
        convolutions: nn.Sequential,
        spec: ArraySpec,
        width: int | None,
        *,
        channels_last: bool,
        layer_norm: bool,
        standardize: bool,
    ) -> None:
        super().__init__()
        self.channels_last = channels_last
        self.compute_dtype: torch.dtype | None = None  # of its layers; None: that of its weights
        self.statistics = ScreenStatistics(*spec.shape[1:]) if standardize else None
        self.convolutions = convolutions
        with torch.no_grad():
            flat = convolutions(torch.zeros(1, *spec.shape)).flatten(1).shape[1]
        self.project = _project(flat, width, layer_norm)
        self.width = width or flat
        if channels_last:
            convolutions.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, obs: Tensor) -> Tensor:
        if self.statistics is None:
            pixels = scale_pixels(obs, channels_last=self.channels_last)
        else:
            pixels = self.statistics(obs, channels_last=self.channels_last)
        with lowered(self.compute_dtype, pixels):
            # flattened in channel, row, column order in both layouts
            features: Tensor = self.project(self.convolutions(pixels).flatten(1))
        return features.float()


class NatureCNN(PixelCNN):
    """The encoder of Mnih et al. 2015: 32×8×8/4, 64×4×4/2, 64×3×3/1, then ``width`` units; or other ``filters``.

    ``width=None`` leaves the last layer out, for heads whose streams bring their own. ``layer_norm`` normalizes
    before every activation. ``padded`` puts zeros around what each convolution reads, so that its windows cover every
    pixel and 11 × 11 places are left where 7 × 7 are otherwise: TensorFlow's and Flax's "SAME", and so Dopamine's.
    Weights and biases start uniform in ±1/√fan_in, which is torch's own default and DeepMind's.
    """

    def __init__(
        self,
        spec: ArraySpec,
        width: int | None = 512,
        *,
        filters: Sequence[tuple[int, int, int]] = NATURE_FILTERS,
        channels_last: bool = True,
        layer_norm: bool = False,
        standardize: bool = False,
        padded: bool = False,
    ) -> None:
        channels, *places = spec.shape
        layers: list[nn.Module] = []
        for size, kernel, stride in filters:
            # one group is layer normalization over all channels and pixels of an image
            normalize = [nn.GroupNorm(1, size)] if layer_norm else []
            around = [_zeros_around(places, kernel, stride)] if padded else []
            layers += [*around, nn.Conv2d(channels, size, kernel, stride), *normalize, nn.ReLU()]
            channels, places = size, [-(-place // stride) for place in places]
        super().__init__(
            nn.Sequential(*layers),
            spec,
            width,
            channels_last=channels_last,
            layer_norm=layer_norm,
            standardize=standardize,
        )


def _zeros_around(places: Sequence[int], kernel: int, stride: int) -> nn.ZeroPad2d:
    """As many as the last window lacks; an odd one goes below and to the right."""
    height, width = (max((-(-place // stride) - 1) * stride + kernel - place, 0) for place in places)
    return nn.ZeroPad2d((width // 2, width - width // 2, height // 2, height - height // 2))


class ImpalaCNN(PixelCNN):
    """The residual encoder of Espeholt et al. 2018, arXiv:1802.01561: sections of 16, 32, 32 channels × ``scale``.

    ``pool`` ends it with a max over that many by that many fields, which makes the features' size independent of
    the image's. ``spectral_norm`` bounds the gain of the residual convolutions, and of those alone.
    """

    def __init__(
        self,
        spec: ArraySpec,
        width: int | None = 512,
        *,
        scale: int = 1,
        pool: int | None = None,
        spectral_norm: bool = False,
        channels_last: bool = True,
        standardize: bool = False,
    ) -> None:
        channels = spec.shape[0]
        sections: list[nn.Module] = []
        for size in (16 * scale, 32 * scale, 32 * scale):
            sections += [
                nn.Conv2d(channels, size, 3, padding=1),
                nn.MaxPool2d(3, 2, padding=1),
                _Residual(size, spectral_norm),
                _Residual(size, spectral_norm),
            ]
            channels = size
        ending = [nn.AdaptiveMaxPool2d(pool)] if pool else []
        convolutions = nn.Sequential(*sections, nn.ReLU(), *ending)
        super().__init__(
            convolutions, spec, width, channels_last=channels_last, layer_norm=False, standardize=standardize
        )


class _Residual(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int, spectral_norm: bool) -> None:
        super().__init__()
        convolution = SpectralConv2d if spectral_norm else nn.Conv2d
        self.first = convolution(channels, channels, 3, padding=1)
        self.second = convolution(channels, channels, 3, padding=1)

    def forward(self, features: Tensor) -> Tensor:
        change: Tensor = self.second(F.relu(self.first(F.relu(features))))
        return features + change


class BoardCNN(nn.Module):
    """The encoder of Young and Tian 2019, arXiv:1903.03176, for boards of few cells: 16×3×3/1, then ``width`` units.

    Cells arrive as booleans, a channel for each kind of object, and become 0 and 1.
    """

    def __init__(self, spec: ArraySpec, width: int | None = 128, *, layer_norm: bool = False) -> None:
        super().__init__()
        channels, height, board_width = spec.shape
        normalize = [nn.GroupNorm(1, 16)] if layer_norm else []
        self.convolutions = nn.Sequential(nn.Conv2d(channels, 16, 3), *normalize, nn.ReLU())
        flat = 16 * (height - 2) * (board_width - 2)
        self.project = _project(flat, width, layer_norm)
        self.width = width or flat

    def forward(self, obs: Tensor) -> Tensor:
        features: Tensor = self.project(self.convolutions(obs.float()).flatten(1))  # [B, C, H, W] → [B, width]
        return features


class MLP(nn.Module):
    """Fully connected layers for vector observations; several named vectors are joined in name order.

    Bytes (a console's memory, pictures among other observations) are divided by what they reach at most, as pixels are.
    """

    def __init__(
        self, spec: ArraySpec | dict[str, ArraySpec], hidden: Sequence[int] = (128, 128), *, layer_norm: bool = False
    ) -> None:
        super().__init__()
        specs = spec if isinstance(spec, dict) else {"": spec}
        self.names = sorted(specs)
        self.scales = [_scale(specs[name]) for name in self.names]
        size = sum(int(np.prod(specs[name].shape)) for name in self.names)
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [Linear(size, width), *([nn.LayerNorm(width)] if layer_norm else []), nn.ReLU()]
            size = width
        self.layers = nn.Sequential(*layers)
        self.width = size

    def forward(self, obs: Observation) -> Tensor:
        vectors = [obs[name] for name in self.names] if isinstance(obs, dict) else [obs]
        flat = [
            vector.float().reshape(len(vector), -1) if scale == 1.0 else vector.reshape(len(vector), -1) * scale
            for vector, scale in zip(vectors, self.scales, strict=True)
        ]
        features: Tensor = self.layers(torch.cat(flat, dim=1))
        return features


def _scale(spec: ArraySpec) -> float:
    """Bytes are brought into 0 … 1, everything else is left as it is."""
    if spec.dtype != np.uint8:
        return 1.0
    return 1.0 / (spec.high if 0 < spec.high <= 255 else 255)


def is_image(spec: ArraySpec | dict[str, ArraySpec]) -> bool:
    """Bytes with two spatial axes are pixels."""
    return isinstance(spec, ArraySpec) and len(spec.shape) == 3 and spec.dtype == np.uint8


def is_board(spec: ArraySpec | dict[str, ArraySpec]) -> bool:
    """Booleans with two spatial axes are the cells of a board."""
    return isinstance(spec, ArraySpec) and len(spec.shape) == 3 and spec.dtype == np.bool_


def hidden_units(spec: ArraySpec | dict[str, ArraySpec], encoder: str) -> int:
    """Units of the fully connected layer after an encoder of this observation."""
    if is_image(spec):
        return 256 if encoder in ("small", "patches") else 512
    return 128


def make_encoder(
    spec: ArraySpec | dict[str, ArraySpec],
    *,
    projected: bool = True,
    channels_last: bool = True,
    encoder: str = "nature",
    layer_norm: bool = False,
    impala_scale: int = 1,
    impala_pool: int | None = None,
    spectral_norm: bool = False,
    standardize: bool = False,
    hidden: Sequence[int] = (128, 128),
) -> PixelCNN | BoardCNN | MLP:
    """Pixels get the convolutions that ``encoder`` names, boards a small one, vectors the layers of ``hidden``.

    ``projected=False`` leaves the last layer of a convolutional encoder out, for heads that bring their own.
    ``standardize`` brings pixels to mean 0 and deviation 1.
    """
    if encoder != "nature" and not is_image(spec):
        kind = "boards" if is_board(spec) else "vectors"
        raise UsageError(f"agent.encoder={encoder} reads images, and these observations are {kind}; use nature")
    if standardize and not is_image(spec):
        raise UsageError(
            "agent.standardize_pixels=true needs images; for vectors there is training.normalize_observations"
        )
    width = hidden_units(spec, encoder) if projected else None
    if is_board(spec):
        assert isinstance(spec, ArraySpec)
        if min(spec.shape[1:]) < 3:
            raise UsageError(f"boards of {spec.shape[1]}×{spec.shape[2]} are too small for the encoder: at least 3×3")
        return BoardCNN(spec, width, layer_norm=layer_norm)
    if not is_image(spec):
        return MLP(spec, hidden, layer_norm=layer_norm)
    assert isinstance(spec, ArraySpec)
    if min(spec.shape[1:]) < 36:
        raise UsageError(
            f"images of {spec.shape[1]}×{spec.shape[2]} are too small for the convolutional encoders: at least 36×36"
        )
    if encoder == "impala":
        return ImpalaCNN(
            spec,
            width,
            scale=impala_scale,
            pool=impala_pool,
            spectral_norm=spectral_norm,
            channels_last=channels_last,
            standardize=standardize,
        )
    return NatureCNN(
        spec,
        width,
        filters=FILTERS[encoder],
        channels_last=channels_last,
        layer_norm=layer_norm,
        standardize=standardize,
        padded=encoder == "padded",
    )


def _project(flat: int, width: int | None, layer_norm: bool) -> nn.Sequential:
    if width is None:
        return nn.Sequential()
    return nn.Sequential(Linear(flat, width), *([nn.LayerNorm(width)] if layer_norm else []), nn.ReLU())
