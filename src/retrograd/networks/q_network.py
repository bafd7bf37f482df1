"""Encoder and head as one Q network."""

from __future__ import annotations

from torch import Tensor, nn

from retrograd.core.types import ArraySpec
from retrograd.networks.encoders import Observation, is_image, make_encoder
from retrograd.networks.heads import DuelingHead, LinearHead


class QNetwork(nn.Module):
    """Observation → action values [B, A]."""

    def __init__(self, encoder: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, obs: Observation) -> Tensor:
        return self.head(self.encoder(obs))

    def get_q_values(self, obs: Observation) -> Tensor:
        """Expected return of each action [B, A]."""
        return self(obs)


def make_q_network(
    spec: ArraySpec | dict[str, ArraySpec], num_actions: int, *, network: str, channels_last: bool
) -> QNetwork:
    """``network`` is "nature" (one linear head, after 512 units) or "dueling" (two streams of 512 each)."""
    if network == "nature":
        encoder = make_encoder(spec, channels_last=channels_last)
        return QNetwork(encoder, LinearHead(encoder.width, num_actions))
    if network == "dueling":
        trunk = make_encoder(spec, width=None, channels_last=channels_last)
        return QNetwork(trunk, DuelingHead(trunk.width, num_actions, hidden=512 if is_image(spec) else trunk.width))
    raise ValueError(f"unknown network {network!r}")
