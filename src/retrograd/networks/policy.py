"""Actors and critics: observation → distribution over actions, observation → value.

Orthogonal weights and zero biases (Engstrom et al. 2020, Huang et al. 2022): gain √2 in the encoder, 0.01 in the
policy's last layer, so that the first policy is nearly uniform, and 1 in the critic's.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn

from retrograd.core.types import Array, ArraySpec, ContinuousActions, DiscreteActions
from retrograd.networks.cores import RecurrentCore, State
from retrograd.networks.distributions import ActionDistribution, CategoricalActions, GaussianActions
from retrograd.networks.encoders import Observation, make_encoder

Actions = DiscreteActions | ContinuousActions


class CategoricalHead(nn.Module):
    """Features → one of n actions."""

    def __init__(self, width: int, num_actions: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, num_actions)

    def forward(self, features: Tensor) -> CategoricalActions:
        return CategoricalActions.from_logits(self.linear(features))


class GaussianHead(nn.Module):
    """Features → real numbers of the box's shape; the deviation is learned, but knows no state."""

    def __init__(self, width: int, action_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, action_dim)
        self.log_std = nn.Parameter(torch.zeros(action_dim))

    def forward(self, features: Tensor) -> GaussianActions:
        return GaussianActions(self.linear(features), self.log_std)


class PolicyNetwork(nn.Module):
    """The actor."""

    def __init__(self, encoder: nn.Module, head: CategoricalHead | GaussianHead) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def forward(self, obs: Observation) -> ActionDistribution:
        policy: ActionDistribution = self.head(self.encoder(obs))
        return policy

    @torch.no_grad()
    def get_action(self, obs: Observation, rng: np.random.Generator | None = None) -> Array:
        """A sample for each row, or without a generator the likeliest action."""
        policy = self.forward(obs)
        return policy.mode() if rng is None else policy.sample(rng)


class ValueNetwork(nn.Module):
    """The critic: value [B]."""

    def __init__(self, encoder: nn.Module, width: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(width, 1)

    def forward(self, obs: Observation) -> Tensor:
        value: Tensor = self.head(self.encoder(obs)).squeeze(-1)
        return value


class ActorCritic(nn.Module):
    """Both at once; where they share an encoder it runs once."""

    def __init__(self, actor: PolicyNetwork, critic: ValueNetwork) -> None:
        super().__init__()
        self.actor = actor
        self.critic = critic
        self.shared = actor.encoder is critic.encoder

    def forward(self, obs: Observation) -> tuple[ActionDistribution, Tensor]:
        if not self.shared:
            return self.actor(obs), self.critic(obs)
        features = self.actor.encoder(obs)
        return self.actor.head(features), self.critic.head(features).squeeze(-1)

    def value(self, obs: Observation) -> Tensor:
        """Value [B] alone."""
        return self.critic.forward(obs)


class RecurrentActorCritic(nn.Module):
    """Encoder, memory, then both heads."""

    def __init__(self, encoder: nn.Module, core: RecurrentCore, head: CategoricalHead | GaussianHead) -> None:
        super().__init__()
        self.encoder = encoder
        self.core = core
        self.policy_head = head
        self.value_head = nn.Linear(core.hidden_size, 1)

    def forward(self, obs: Observation, state: State) -> tuple[ActionDistribution, Tensor, State]:
        """One step of each row: ``obs`` [N, ...], ``state`` [N, ...] before it; the state after it comes last."""
        memory, after = self.core(self.encoder(obs).unsqueeze(0), state)
        return *self._heads(memory.squeeze(0)), after

    def unroll(self, obs: Observation, mask: Tensor, state: State) -> tuple[ActionDistribution, Tensor]:
        """Runs [L, S] from their first states; the outcome [B] is of the real steps alone, in the mask's order.

        ``obs`` [B, ...] are the real steps: padding costs the memory a little and the encoder nothing.
        """
        features = self.encoder(obs)
        padded = features.new_zeros(*mask.shape, features.shape[-1])  # [L, S, width]
        padded[mask] = features
        memory, _ = self.core(padded, state)
        return self._heads(memory[mask])

    def _heads(self, memory: Tensor) -> tuple[ActionDistribution, Tensor]:
        return self.policy_head(memory), self.value_head(memory).squeeze(-1)


def make_actor_critic(
    spec: ArraySpec | dict[str, ArraySpec],
    actions: Actions,
    *,
    shared: bool,
    channels_last: bool,
    encoder_kind: str = "nature",
    standardize: bool = False,
) -> ActorCritic:
    """Encoders by the observation's shape, the policy's head by the kind of actions."""
    make = partial(make_encoder, spec, channels_last=channels_last, encoder=encoder_kind, standardize=standardize)
    encoder = make()
    critic_encoder = encoder if shared else make()
    network = ActorCritic(
        PolicyNetwork(encoder, _policy_head(encoder.width, actions)), ValueNetwork(critic_encoder, encoder.width)
    )
    init_orthogonal(encoder, math.sqrt(2))
    if not shared:
        init_orthogonal(critic_encoder, math.sqrt(2))
    init_orthogonal(network.actor.head, 0.01)
    init_orthogonal(network.critic.head, 1.0)
    return network


def make_recurrent_actor_critic(
    spec: ArraySpec | dict[str, ArraySpec],
    actions: Actions,
    *,
    cell: str,
    hidden_size: int,
    channels_last: bool,
    encoder_kind: str = "nature",
) -> RecurrentActorCritic:
    """``cell`` is lstm or gru."""
    encoder = make_encoder(spec, channels_last=channels_last, encoder=encoder_kind)
    core = RecurrentCore(encoder.width, hidden_size, cell=cell)
    network = RecurrentActorCritic(encoder, core, _policy_head(hidden_size, actions))
    init_orthogonal(encoder, math.sqrt(2))
    init_orthogonal(network.policy_head, 0.01)
    init_orthogonal(network.value_head, 1.0)
    return network


def _policy_head(width: int, actions: Actions) -> CategoricalHead | GaussianHead:
    if isinstance(actions, DiscreteActions):
        return CategoricalHead(width, actions.n)
    return GaussianHead(width, int(np.prod(actions.low.shape)))


@torch.no_grad()
def init_orthogonal(module: nn.Module, gain: float) -> None:
    """Orthogonal weights and zero biases in every linear and convolutional layer of ``module``."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            # through a contiguous matrix, because channels-last weights cannot be seen as one
            matrix = torch.empty(layer.weight.shape)
            layer.weight.copy_(nn.init.orthogonal_(matrix, gain))
            if layer.bias is not None:
                layer.bias.zero_()
