"""What weights begin with, where it is not torch's own ±1/√fan_in for weights and biases alike."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import nn

# the bound of a uniform distribution by how many numbers a unit reads and how many units read one of its own
BOUNDS: dict[str, Callable[[int, int], float]] = {
    "glorot": lambda reads, read_by: math.sqrt(6 / (reads + read_by)),  # Glorot and Bengio 2010; Dopamine's DQN
    "fan_in": lambda reads, _: math.sqrt(3**0.5 / reads),  # variance 1/(√3 fan_in); Dopamine's distributional agents
}


def begin_with(network: nn.Module, scheme: str) -> None:
    """Draw all weights anew by one of ``BOUNDS``, from torch's generator; biases begin at zero."""
    for layer in network.modules():
        if not isinstance(layer, nn.Conv2d | nn.Linear):
            continue
        area = layer.weight[0, 0].numel()  # of a convolution's window
        bound = BOUNDS[scheme](layer.weight.shape[1] * area, layer.weight.shape[0] * area)
        nn.init.uniform_(layer.weight, -bound, bound)
        if layer.bias is not None:
            nn.init.zeros_(layer.bias)
