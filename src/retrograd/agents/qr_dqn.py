"""QR-DQN: quantile regression Q learning.

Dabney, Rowland, Bellemare, Munos 2018, arXiv:1710.10044.
Loss:  Σ_i mean_j ρ_τ̂i(r + γ θ_j(s', a*) - θ_i(s, a)),  ρ the quantile Huber loss, a* = argmax of the mean.
Differs from the paper: nothing; ``double`` and Munchausen can be added.
Defaults: 200 quantiles, κ 1.  Eats Transitions; the head must output quantiles [B, A, Z].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from retrograd.agents.munchausen import Munchausen
from retrograd.agents.value import QLossOut, at_action
from retrograd.core.distributional import quantile_huber
from retrograd.core.types import Transitions
from retrograd.networks.heads import Quantiles
from retrograd.networks.q_network import QNetwork


@dataclass(frozen=True, slots=True)
class QRDQNLoss:
    """The priority is the distance of the means, so that it is an error in the unit of returns."""

    double: bool = False
    kappa: float = 1.0
    munchausen: Munchausen | None = None

    def __call__(self, online: QNetwork, target: QNetwork, batch: Transitions) -> QLossOut:
        assert isinstance(online.distribution, Quantiles)
        places = online(batch.obs)  # [B, A, Z]
        q = online.expect(places.detach())
        goal = self._goal(online, target, batch, q)
        chosen = at_action(places, batch.action)  # [B, Z]
        per_sample = quantile_huber(chosen, online.distribution.fractions, goal, self.kappa)
        priority = (goal.mean(1) - chosen.detach().mean(1)).abs()
        return QLossOut(per_sample, priority, q)

    @torch.no_grad()
    def _goal(self, online: QNetwork, target: QNetwork, batch: Transitions, q: Tensor) -> Tensor:
        """r + γ Z(s', ·) [B, Z]."""
        places = target(batch.next_obs)  # [B, A, Z]
        next_q = target.expect(places)
        reward, discount = batch.reward.unsqueeze(1), batch.discount.unsqueeze(1)
        if self.munchausen is not None:
            past = q if self.munchausen.policy == "online" else target.expect(target(batch.obs))
            bonus = self.munchausen.bonus(past, batch.action).unsqueeze(1)
            return reward + bonus + discount * self.munchausen.soft_value(next_q, places)
        best = (online.expect(online(batch.next_obs)) if self.double else next_q).argmax(1)
        return reward + discount * at_action(places, best)
