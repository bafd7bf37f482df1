"""Heads: features [B, width] → one row of ``outputs`` numbers for each action.

A head's output is [B, A] for plain Q values and [B, A, Z] when each action has Z atoms.
"""

from __future__ import annotations

from torch import Tensor, nn


class LinearHead(nn.Module):
    """One linear layer, as in DQN."""

    def __init__(self, width: int, num_actions: int, atoms: int = 1) -> None:
        super().__init__()
        self.num_actions, self.atoms = num_actions, atoms
        self.linear = nn.Linear(width, num_actions * atoms)

    def forward(self, features: Tensor) -> Tensor:
        return _shape(self.linear(features), self.num_actions, self.atoms)


class DuelingHead(nn.Module):
    """Q(s, a) = V(s) + A(s, a) - mean_a A(s, a), the mean taken for each atom.

    Wang et al. 2016, arXiv:1511.06581, eq. 9. The gradient into the shared encoder is scaled by 1/√2
    because two streams send one back.
    """

    def __init__(self, width: int, num_actions: int, atoms: int = 1, hidden: int = 512) -> None:
        super().__init__()
        self.num_actions, self.atoms = num_actions, atoms
        self.value = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, atoms))
        self.advantage = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, num_actions * atoms))

    def forward(self, features: Tensor) -> Tensor:
        if features.requires_grad:
            features = features.clone()  # the hook must not touch other users of the features
            features.register_hook(lambda gradient: gradient * 2**-0.5)
        value = _shape(self.value(features), 1, self.atoms)
        advantage = _shape(self.advantage(features), self.num_actions, self.atoms)
        return value + advantage - advantage.mean(1, keepdim=True)


def _shape(output: Tensor, num_actions: int, atoms: int) -> Tensor:
    return output if atoms == 1 else output.view(-1, num_actions, atoms)
