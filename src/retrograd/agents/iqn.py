"""IQN: implicit quantile networks.

Dabney, Ostrovski, Silver, Munos 2018, arXiv:1806.06923.
Loss:  Σ_i mean_j ρ_τi(r + γ Z_τ'j(s', a*) - Z_τi(s, a)),  τ, τ' uniform, a* = argmax of the mean over K others.
Differs from the paper: evaluation asks at K evenly spaced fractions instead of random ones; ``double`` and Munchausen
can be added.
Defaults: N = N' = 64, K = 32, 64 cosines i = 0 … 63, κ 1.  Eats Transitions; the network must be an ImplicitQNetwork.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from retrograd.agents.munchausen import Munchausen
from retrograd.agents.value import QLossOut, at_action
from retrograd.core.distributional import quantile_huber
from retrograd.core.types import Transitions
from retrograd.networks.q_network import ImplicitQNetwork, QNetwork


@dataclass(frozen=True, slots=True)
class IQNLoss:
    """Fractions for the prediction, the goal and the choice of action are drawn independently."""

    samples: int
    target_samples: int
    double: bool = False
    kappa: float = 1.0
    munchausen: Munchausen | None = None

    def __call__(self, online: QNetwork, target: QNetwork, batch: Transitions) -> QLossOut:
        assert isinstance(online, ImplicitQNetwork)
        assert isinstance(target, ImplicitQNetwork)
        places, fractions = online.sample(online.encoder(batch.obs), self.samples)  # [B, A, N], [B, N]
        q = online.expect(places.detach())
        goal = self._goal(online, target, batch, q)
        chosen = at_action(places, batch.action)  # [B, N]
        per_sample = quantile_huber(chosen, fractions, goal, self.kappa)
        priority = (goal.mean(1) - chosen.detach().mean(1)).abs()
        return QLossOut(per_sample, priority, q)

    @torch.no_grad()
    def _goal(self, online: ImplicitQNetwork, target: ImplicitQNetwork, batch: Transitions, q: Tensor) -> Tensor:
        """r + γ Z(s', ·) at random fractions [B, N']. What decides and what is expected are one target network: the
        same noise, at other fractions."""
        past = q
        if self.munchausen is not None and self.munchausen.policy != "online":
            past = target.expect(target(batch.obs))
        features = target.encoder(batch.next_obs)
        places, _ = target.sample(features, self.target_samples)  # [B, A, N']
        reward, discount = batch.reward.unsqueeze(1), batch.discount.unsqueeze(1)
        if self.double:
            deciding = online(batch.next_obs)
        else:
            deciding, _ = target.sample(features, target.policy_samples, redraw=False)
        next_q = target.expect(deciding)
        if self.munchausen is None:
            return reward + discount * at_action(places, next_q.argmax(1))
        bonus = self.munchausen.bonus(past, batch.action).unsqueeze(1)
        return reward + bonus + discount * self.munchausen.soft_value(next_q, places)
