"""PPO: proximal policy optimization with a clipped ratio.

Schulman et al. 2017, arXiv:1707.06347; details after Huang et al. 2022, "The 37 implementation details of PPO".
Loss:  -E[min(ρA, clip(ρ, 1-ε, 1+ε)A)] + c_v ½ E[(R - V)²] - c_e E[H],  ρ = π(a|s) / π_played(a|s).
Differs from the paper: advantages are normalized in each minibatch; the value may be clipped, too.
Defaults: the paper's table 5 (Atari) in ``configs/agent/ppo.yaml``.  Eats Rollouts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from retrograd.agents.policy import PolicyLossOut
from retrograd.core.schedules import Schedule
from retrograd.core.types import Rollout
from retrograd.networks.distributions import ActionDistribution


@dataclass(frozen=True, slots=True)
class PPOLoss:
    """``value_clip`` holds the value as near to the one that was remembered as the ratio to 1."""

    clip_range: Schedule
    entropy_coef: Schedule
    value_coef: float
    value_clip: bool
    normalize_advantage: bool

    def __call__(self, policy: ActionDistribution, value: Tensor, batch: Rollout, /, *, step: int) -> PolicyLossOut:
        clip, advantage = self.clip_range(step), batch.advantage
        if self.normalize_advantage:
            advantage = normalize(advantage)
        log_ratio = policy.log_prob(batch.action) - batch.log_prob  # [B]
        ratio = log_ratio.exp()
        policy_loss = -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
        value_loss = self._value_loss(value, batch, clip)
        entropy = policy.entropy().mean()
        critic, bonus = self.value_coef * value_loss, self.entropy_coef(step) * entropy
        with torch.no_grad():
            approx_kl = (ratio - 1 - log_ratio).mean()  # never negative, unlike the mean of -log ρ
            clipped = ((ratio - 1).abs() > clip).float().mean()
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "clip_fraction": clipped}
        seen = {name: figure.detach() for name, figure in metrics.items()}
        return PolicyLossOut(policy_loss + critic - bonus, policy_loss - bonus, critic, approx_kl, seen)

    def _value_loss(self, value: Tensor, batch: Rollout, clip: float) -> Tensor:
        squared = (batch.returns - value).square()
        if self.value_clip:
            near = batch.value + (value - batch.value).clamp(-clip, clip)
            squared = torch.max(squared, (batch.returns - near).square())
        return 0.5 * squared.mean()

    def coefficients(self, step: int) -> dict[str, float]:
        return {"clip_range": self.clip_range(step), "entropy_coef": self.entropy_coef(step)}


def normalize(advantage: Tensor) -> Tensor:
    """Mean 0 and deviation 1; a single advantage has no deviation and stays."""
    if len(advantage) < 2:
        return advantage
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
