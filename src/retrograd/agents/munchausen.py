"""Munchausen reinforcement learning: M-DQN, M-QR-DQN, M-IQN, by the loss it is added to.

Vieillard, Pietquin, Geist 2020, arXiv:2007.14430.
Goal:  r + α clip(τ ln π(a|s), l0, 0) + γ Σ_a' π(a'|s') (Q_target(s', a') - τ ln π(a'|s')),  π = softmax(Q_target / τ).
Differs from the paper: with n steps the bonus belongs to the first of them alone. ``policy="online"`` takes π(a|s) from
the online network, as BTR does.
Defaults: the paper's table 2 (α 0.9, τ 0.03, l0 -1).  Used by losses that eat Transitions.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Munchausen:
    """Adds the scaled log-policy to the reward, and softens the next state's maximum."""

    alpha: float
    tau: float
    clip: float
    policy: str = "target"

    def soften(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """π [B, A] and τ ln π [B, A]; finite for values of any size."""
        advantage = q - q.amax(1, keepdim=True)
        scaled = advantage / self.tau
        return scaled.softmax(1), advantage - self.tau * scaled.logsumexp(1, keepdim=True)

    def bonus(self, q: Tensor, action: Tensor) -> Tensor:
        """α clip(τ ln π(a|s), l0, 0) [B]."""
        _, log_policy = self.soften(q)
        taken = log_policy.gather(1, action.unsqueeze(1)).squeeze(1)
        return self.alpha * taken.clamp(self.clip, 0.0)

    def soft_value(self, q: Tensor, returns: Tensor) -> Tensor:
        """Σ_a π(a|s') (Z(s', a) - τ ln π(a|s')) [B, Z] of returns [B, A, Z], the policy being that of ``q``."""
        policy, log_policy = self.soften(q)
        return (policy.unsqueeze(2) * (returns - log_policy.unsqueeze(2))).sum(1)
