"""What a policy says about its next action, as a distribution over actions for each row.

Samples come from a numpy generator that is handed in, so that a run's random streams are all it needs to repeat itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from retrograd.core.types import Array

LOG_SQRT_2_PI = 0.5 * math.log(2 * math.pi)


class ActionDistribution(Protocol):
    def sample(self, rng: np.random.Generator) -> Array: ...  # [N] or [N, action_dim]
    def mode(self) -> Array: ...  # the likeliest action of each row
    def log_prob(self, action: Tensor) -> Tensor: ...  # [B]
    def entropy(self) -> Tensor: ...  # [B]


@dataclass(frozen=True, slots=True)
class CategoricalActions:
    """One of A actions."""

    log_probs: Tensor  # [B, A], normalized

    @classmethod
    def from_logits(cls, logits: Tensor) -> CategoricalActions:
        return cls(logits.log_softmax(-1))

    def sample(self, rng: np.random.Generator) -> Array:
        """Inverse of the cumulative distribution, one uniform number for each row."""
        cumulative = np.exp(self.log_probs.detach().cpu().numpy().astype(np.float64)).cumsum(-1)
        # the last sum misses 1 by rounding: scaled, no uniform number lies beyond it
        goal = rng.random((len(cumulative), 1)) * cumulative[:, -1:]
        chosen: Array = (cumulative <= goal).sum(-1)
        return chosen

    def mode(self) -> Array:
        return self.log_probs.argmax(-1).cpu().numpy()

    def log_prob(self, action: Tensor) -> Tensor:
        return self.log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        return -(self.log_probs.exp() * self.log_probs).sum(-1)


@dataclass(frozen=True, slots=True)
class GaussianActions:
    """Real numbers, each dimension on its own; the environment cuts them to its box, the density is of the uncut."""

    mean: Tensor  # [B, action_dim]
    log_std: Tensor  # [action_dim], the same for every state

    def sample(self, rng: np.random.Generator) -> Array:
        mean, std = self.mean.detach().cpu().numpy(), self.log_std.detach().exp().cpu().numpy()
        noise = rng.standard_normal(mean.shape, np.float32)
        return mean + std * noise

    def mode(self) -> Array:
        return self.mean.detach().cpu().numpy()

    def log_prob(self, action: Tensor) -> Tensor:
        scaled = (action - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * scaled.square() - self.log_std - LOG_SQRT_2_PI).sum(-1)

    def entropy(self) -> Tensor:
        return (self.log_std + 0.5 + LOG_SQRT_2_PI).sum().expand(len(self.mean))
