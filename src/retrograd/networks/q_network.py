"""Encoder and head as one Q network."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from retrograd.core.distributional import quantile_midpoints
from retrograd.core.types import ArraySpec
from retrograd.networks.encoders import Observation, hidden_units, make_encoder
from retrograd.networks.heads import Categorical, CosineEmbedding, DuelingHead, LinearHead, Quantiles
from retrograd.networks.layers import NoiseSource, NoisyLinear, perturb
from retrograd.networks.products import Linear


class QNetwork(nn.Module):
    """Observation → action values [B, A], or with a ``distribution`` Z numbers for each action [B, A, Z].

    Calling it is for learning: noisy layers get new noise at every call, one draw for the whole batch.
    """

    def __init__(
        self,
        encoder: nn.Module,
        head: nn.Module,
        distribution: Categorical | Quantiles | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.distribution = distribution
        self.noise = noise
        self._noisy = [layer for layer in self.modules() if isinstance(layer, NoisyLinear)]
        self._noise_size = sum(layer.inputs + layer.outputs for layer in self._noisy)

    def forward(self, obs: Observation) -> Tensor:
        self._draw_noise()
        output: Tensor = self.head(self.encoder(obs))
        return output

    def expect(self, output: Tensor) -> Tensor:
        """Expected return of each action [B, A] from what the network gave."""
        return output if self.distribution is None else self.distribution(output)

    def get_q_values(self, obs: Observation, *, noisy: bool = False) -> Tensor:
        """Expected return of each action [B, A]: without noise, or with that held for acting."""
        self._hold_noise(noisy)
        return self.expect(self.head(self.encoder(obs)))

    def get_distributions(self, obs: Observation) -> tuple[Tensor, Tensor] | None:
        """Returns and their probabilities, [B, A, Z] each, without noise; None where only means are learned."""
        if self.distribution is None:
            return None
        self._hold_noise(False)
        output: Tensor = self.head(self.encoder(obs))
        if isinstance(self.distribution, Categorical):
            return self.distribution.support.expand_as(output), output.softmax(-1)
        return output, torch.full_like(output, 1 / self.distribution.atoms)

    def _draw_noise(self) -> None:
        if self._noisy:
            assert self.noise is not None
            perturb(self._noisy, self.noise.fresh(self._noise_size).to(self._noisy[0].weight.device))

    def _hold_noise(self, noisy: bool) -> None:
        if self._noisy:
            assert self.noise is not None
            held = self.noise.held(self._noise_size).to(self._noisy[0].weight.device) if noisy else None
            perturb(self._noisy, held)


class ImplicitQNetwork(QNetwork):
    """Z_τ(s, a) = f(ψ(s) ⊙ φ(τ)) for any fractions τ (Dabney et al. 2018, arXiv:1806.06923).

    Calling it gives ``policy_samples`` returns at random fractions [B, A, K].
    """

    noise: NoiseSource

    def __init__(
        self, encoder: nn.Module, embedding: CosineEmbedding, head: nn.Module, noise: NoiseSource, policy_samples: int
    ) -> None:
        super().__init__(encoder, head, None, noise)
        self.embedding = embedding
        self.policy_samples = policy_samples

    def forward(self, obs: Observation) -> Tensor:
        return self.sample(self.encoder(obs), self.policy_samples)[0]

    def expect(self, output: Tensor) -> Tensor:
        return output.mean(-1)

    def get_q_values(self, obs: Observation, *, noisy: bool = False) -> Tensor:
        """With noise the fractions are random; without it they are the midpoints, so that judging draws nothing."""
        features = self.encoder(obs)
        self._hold_noise(noisy)
        if noisy:
            fractions = self._fractions(features, self.policy_samples)
        else:
            fractions = quantile_midpoints(self.policy_samples, features.device).expand(len(features), -1)
        return self.expect(self.decode(features, fractions))

    def get_distributions(self, obs: Observation, count: int = 64) -> tuple[Tensor, Tensor]:
        """Returns at ``count`` evenly spaced fractions."""
        self._hold_noise(False)
        features = self.encoder(obs)
        places = self.decode(features, quantile_midpoints(count, features.device).expand(len(features), -1))
        return places, torch.full_like(places, 1 / count)

    def sample(self, features: Tensor, count: int, *, redraw: bool = True) -> tuple[Tensor, Tensor]:
        """Returns [B, A, N] at new random fractions, and the fractions [B, N]; with new noise unless told otherwise."""
        if redraw:
            self._draw_noise()
        fractions = self._fractions(features, count)
        return self.decode(features, fractions), fractions

    def decode(self, features: Tensor, fractions: Tensor) -> Tensor:
        """Returns [B, A, N] at the given fractions [B, N]."""
        joined = features.unsqueeze(1) * self.embedding(fractions)  # [B, N, width]
        values: Tensor = self.head(joined.flatten(0, 1))  # [B · N, A]
        return values.view(*fractions.shape, -1).transpose(1, 2)

    def _fractions(self, features: Tensor, count: int) -> Tensor:
        return self.noise.uniform(len(features), count).to(features.device)


def make_q_network(
    spec: ArraySpec | dict[str, ArraySpec],
    num_actions: int,
    *,
    network: str,
    channels_last: bool,
    distribution: Categorical | Quantiles | None = None,
    implicit: tuple[int, int] | None = None,
    noisy_sigma: float | None = None,
    noise: NoiseSource | None = None,
    layer_norm: bool = False,
    encoder: Mapping[str, Any] | None = None,
) -> QNetwork:
    """``network`` is "nature" (one linear head, after 512 units) or "dueling" (two streams of 512 each).

    Boards and vectors have 128 units in their place.

    ``implicit`` is (cosines, policy samples) of an implicit quantile network; ``noisy_sigma`` makes the layers after
    the trunk noisy; ``layer_norm`` normalizes in the head; ``encoder`` holds further arguments of ``make_encoder``.
    """
    if network not in ("nature", "dueling"):
        raise ValueError(f"unknown network {network!r}")
    options = {"channels_last": channels_last, **(encoder or {})}
    atoms = distribution.atoms if distribution is not None else 1
    if network == "nature" and noisy_sigma is None and implicit is None and not layer_norm:
        trunk = make_encoder(spec, **options)
        return QNetwork(trunk, LinearHead(trunk.width, num_actions, atoms), distribution)
    hidden = hidden_units(spec, options.get("encoder", "nature"))
    linear: Any = Linear if noisy_sigma is None else partial(NoisyLinear, sigma=noisy_sigma)
    if network == "dueling":
        trunk = make_encoder(spec, projected=False, **options)
        head: nn.Module = DuelingHead(trunk.width, num_actions, atoms, hidden, linear=linear, layer_norm=layer_norm)
    else:
        # the encoder's last layer moves into the head, where it can be noisy and sees the fractions
        trunk = make_encoder(spec, projected=False, hidden=(128,), **options)
        head = LinearHead(trunk.width, num_actions, atoms, hidden=hidden, linear=linear, layer_norm=layer_norm)
    if implicit is None:
        return QNetwork(trunk, head, distribution, noise)
    assert noise is not None
    cosines, policy_samples = implicit
    return ImplicitQNetwork(trunk, CosineEmbedding(cosines, trunk.width), head, noise, policy_samples)
