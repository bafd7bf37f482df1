"""A2C: the synchronous form of A3C, one step on each rollout.

Mnih et al. 2016, arXiv:1602.01783; PPO with one epoch, one minibatch and no clipping (Huang et al. 2022,
arXiv:2205.09123), which a test holds us to, bit for bit.
Loss:  -E[log π(a|s) A] + c_v ½ E[(R - V)²] - c_e E[H].
Differs from the paper: one learner and many rows instead of asynchronous workers; gradients are means, not sums.
Defaults: those of the first public A2C, in ``configs/agent/a2c.yaml``.  Eats Rollouts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from retrograd.agents.policy import PolicyLossOut
from retrograd.agents.ppo import normalize
from retrograd.core.schedules import Schedule
from retrograd.core.types import Rollout
from retrograd.networks.distributions import ActionDistribution


@dataclass(frozen=True, slots=True)
class A2CLoss:
    entropy_coef: Schedule
    value_coef: float
    normalize_advantage: bool

    def __call__(self, policy: ActionDistribution, value: Tensor, batch: Rollout, /, *, step: int) -> PolicyLossOut:
        advantage = normalize(batch.advantage) if self.normalize_advantage else batch.advantage
        log_prob = policy.log_prob(batch.action)  # [B]
        policy_loss = -(log_prob * advantage).mean()
        value_loss = 0.5 * (batch.returns - value).square().mean()
        entropy = policy.entropy().mean()
        critic, bonus = self.value_coef * value_loss, self.entropy_coef(step) * entropy
        with torch.no_grad():
            log_ratio = log_prob - batch.log_prob
            approx_kl = (log_ratio.exp() - 1 - log_ratio).mean()
        metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
        seen = {name: figure.detach() for name, figure in metrics.items()}
        return PolicyLossOut(policy_loss + critic - bonus, policy_loss - bonus, critic, approx_kl, seen)

    def coefficients(self, step: int) -> dict[str, float]:
        return {"entropy_coef": self.entropy_coef(step)}
