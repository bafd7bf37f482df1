"""Heads: features [B, width] → one row of ``outputs`` numbers for each action.

A head's output is [B, A] for plain Q values and [B, A, Z] when each action has Z atoms.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from retrograd.core.distributional import quantile_midpoints
from retrograd.networks.products import Linear, Multiplying

MakeLinear = Callable[[int, int], Multiplying]  # what a head makes its layers with


class LinearHead(nn.Module):
    """One linear layer, as in DQN; with ``hidden`` a layer of that many units before it."""

    def __init__(
        self,
        width: int,
        num_actions: int,
        atoms: int = 1,
        *,
        hidden: int | None = None,
        linear: MakeLinear = Linear,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.num_actions, self.atoms = num_actions, atoms
        self.hidden = _hidden(width, hidden, linear, layer_norm) if hidden else nn.Sequential()
        self.linear = linear(hidden or width, num_actions * atoms)

    def forward(self, features: Tensor) -> Tensor:
        return _shape(self.linear(self.hidden(features)), self.num_actions, self.atoms)


class DuelingHead(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_a A(s, a), the mean taken for each atom.

    Wang et al. 2016, arXiv:1511.06581, eq. 9. The gradient into the shared encoder is scaled by 1/√2
    because two streams send one back; that is for learning, and in evaluation mode slopes are what they are.
    """

    def __init__(
        self,
        width: int,
        num_actions: int,
        atoms: int = 1,
        hidden: int = 512,
        *,
        linear: MakeLinear = Linear,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.num_actions, self.atoms = num_actions, atoms
        self.value = _hidden(width, hidden, linear, layer_norm).append(linear(hidden, atoms))
        self.advantage = _hidden(width, hidden, linear, layer_norm).append(linear(hidden, num_actions * atoms))

    def forward(self, features: Tensor) -> Tensor:
        if features.requires_grad and self.training:
            features = features.clone()  # the hook must not touch other users of the features
            features.register_hook(lambda gradient: gradient * 2**-0.5)  # type: ignore[no-untyped-call]
        value = _shape(self.value(features), 1, self.atoms)
        advantage = _shape(self.advantage(features), self.num_actions, self.atoms)
        return value + advantage - advantage.mean(1, keepdim=True)


class Categorical(nn.Module):
    """Reads a head's output as logits [B, A, Z] over fixed returns."""

    def __init__(self, v_min: float, v_max: float, atoms: int) -> None:
        super().__init__()
        self.atoms = atoms
        self.support: Tensor
        self.register_buffer("support", torch.linspace(v_min, v_max, atoms), persistent=False)  # [Z]

    def forward(self, logits: Tensor) -> Tensor:
        """Expected returns [B, A]."""
        return logits.softmax(-1) @ self.support


class Quantiles(nn.Module):
    """Reads a head's output [B, A, Z] as returns of equal probability."""

    def __init__(self, atoms: int) -> None:
        super().__init__()
        self.atoms = atoms
        self.fractions: Tensor
        self.register_buffer("fractions", quantile_midpoints(atoms), persistent=False)  # [Z]

    def forward(self, places: Tensor) -> Tensor:
        """Expected returns [B, A]."""
        return places.mean(-1)


class CosineEmbedding(nn.Module):
    """φ(τ) = ReLU(W cos(π i τ) + b) for i = 0 … n - 1 (Dabney et al. 2018, arXiv:1806.06923, eq. 4)."""

    def __init__(self, cosines: int, width: int) -> None:
        super().__init__()
        self.waves: Tensor
        self.register_buffer("waves", torch.pi * torch.arange(cosines, dtype=torch.float32), persistent=False)
        self.linear = nn.Linear(cosines, width)

    def forward(self, fractions: Tensor) -> Tensor:
        """[B, N] → [B, N, width]."""
        return torch.relu(self.linear(torch.cos(fractions.unsqueeze(-1) * self.waves)))


def _hidden(width: int, hidden: int, linear: MakeLinear, layer_norm: bool) -> nn.Sequential:
    first, normalize = linear(width, hidden), [nn.LayerNorm(hidden)] if layer_norm else []
    first.hidden = True
    return nn.Sequential(first, *normalize, nn.ReLU())


def _shape(output: Tensor, num_actions: int, atoms: int) -> Tensor:
    return output if atoms == 1 else output.view(-1, num_actions, atoms)
