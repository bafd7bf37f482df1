"""Layers: noisy linear layers with one source of noise, and convolutions of bounded gain."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retrograd.networks.products import Multiplying


class NoiseSource:
    """Where a network and its copies get their random numbers.

    Numbers are made on the CPU, so that they are the same on every device. Copying a network does not copy its
    source: online and target network go on drawing from one stream and never see the same noise.
    """

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._held: Tensor | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> NoiseSource:
        return self

    def fresh(self, count: int) -> Tensor:
        """f(ε) of ``count`` normal numbers, f(x) = sgn(x) √|x|."""
        normal = torch.randn(count, generator=self._generator)
        return normal.sign().mul_(normal.abs_().sqrt_())

    def held(self, count: int) -> Tensor:
        """The same numbers at every call until ``release``."""
        if self._held is None:
            self._held = self.fresh(count)
        return self._held

    def release(self) -> None:
        """The next call of ``held`` draws anew."""
        self._held = None

    def uniform(self, rows: int, columns: int) -> Tensor:
        return torch.rand(rows, columns, generator=self._generator)

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self._generator.get_state(), "held": self._held}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._generator.set_state(state["generator"].cpu())
        self._held = state["held"]


class NoisyLinear(Multiplying):
    """y = (μ_w + σ_w ∘ ε_out ε_inᵀ) x + μ_b + σ_b ∘ ε_out: a linear layer with factorized noise.

    Fortunato et al. 2018, arXiv:1706.10295, eq. 10 and 11. Without noise the layer is its mean. For few rows the noisy
    matrix is not built: the noise of the input is applied before the product with σ_w and that of the output after it.
    """

    # where building the matrix began to be faster than a second product, measured for 3136 × 512: with 32 rows it takes
    # twice as long forward and 1.2 times as long with the backward pass, with 64 rows as long, with 128 it is faster
    COMPOSE_FROM_ROWS = 96

    def __init__(self, inputs: int, outputs: int, sigma: float) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), sigma * bound))
        self.noise: tuple[Tensor, Tensor] | None = None  # f(ε_in), f(ε_out); no buffer, so never saved or copied

    def forward(self, features: Tensor) -> Tensor:
        if self.noise is None:
            return self.product(features, self.weight, self.bias)
        noise_in, noise_out = self.noise
        if len(features) >= self.COMPOSE_FROM_ROWS:
            weight = torch.addcmul(self.weight, self.weight_sigma, torch.outer(noise_out, noise_in))
            return self.product(features, weight, torch.addcmul(self.bias, self.bias_sigma, noise_out))
        mean = self.product(features, self.weight, self.bias)
        return mean + self.product(features * noise_in, self.weight_sigma, self.bias_sigma) * noise_out


def perturb(layers: list[NoisyLinear], noise: Tensor | None) -> None:
    """Hand each layer its part of one vector of noise; None takes the noise away."""
    if noise is None:
        for layer in layers:
            layer.noise = None
        return
    parts = torch.split(noise, [size for layer in layers for size in (layer.inputs, layer.outputs)])
    for layer, noise_in, noise_out in zip(layers, parts[::2], parts[1::2], strict=True):
        layer.noise = (noise_in, noise_out)


class SpectralConv2d(nn.Conv2d):
    """A convolution whose weight, read as a matrix [out, in·k·k], is divided by its largest singular value.

    Miyato et al. 2018, arXiv:1802.05957. The estimate is improved by one power iteration in each pass that
    learns, and only there: acting, evaluation and target networks leave it as it is.
    """

    def __init__(self, channels_in: int, channels_out: int, kernel_size: int, *, padding: int) -> None:
        super().__init__(channels_in, channels_out, kernel_size, padding=padding)
        self.left: Tensor
        self.register_buffer("left", F.normalize(torch.randn(channels_out), dim=0))
        for _ in range(15):
            self._improve()

    def forward(self, features: Tensor) -> Tensor:
        # a gain rounded to eight bits would bound nothing, so it is found in float32 whatever the layer computes in
        with torch.autocast(features.device.type, enabled=False):
            weight = self.weight / self._gain()
        return F.conv2d(features, weight, self.bias, padding=self.padding)

    def _gain(self) -> Tensor:
        if self.training and torch.is_grad_enabled():
            self._improve()
        matrix = self.weight.flatten(1)
        with torch.no_grad():
            right = F.normalize(matrix.T @ self.left, dim=0)
        # cloned: the next power iteration changes the estimate in place, before the backward pass may have read it
        return torch.dot(self.left.clone(), matrix @ right)

    @torch.no_grad()
    def _improve(self) -> None:
        matrix = self.weight.flatten(1)
        right = F.normalize(matrix.T @ self.left, dim=0)
        self.left.copy_(F.normalize(matrix @ right, dim=0))
