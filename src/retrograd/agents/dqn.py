"""DQN and Double DQN.

Mnih et al. 2015 (Nature 518); van Hasselt et al. 2016, arXiv:1509.06461.
Loss:  ℓ(y - Q(s, a)),  y = r + γ max_a' Q_target(s', a'), or with ``double`` the action of the online network.
Differs from the paper: the error is clipped by the Huber loss, whose gradient is the clipped error itself.
Defaults: Nature's extended data table 1.  Eats Transitions; the head must output values [B, A].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from retrograd.agents.munchausen import Munchausen
from retrograd.agents.value import QLossOut
from retrograd.core.types import Transitions
from retrograd.networks.q_network import QNetwork


@dataclass(frozen=True, slots=True)
class DQNLoss:
    """One-step or n-step Q learning: the batch's reward and discount say which."""

    double: bool = False
    huber: bool = True
    munchausen: Munchausen | None = None

    def __call__(self, online: QNetwork, target: QNetwork, batch: Transitions) -> QLossOut:
        q = online(batch.obs)  # [B, A]
        chosen = q.gather(1, batch.action.unsqueeze(1)).squeeze(1)
        goal = self._goal(online, target, batch, q.detach())
        error = goal - chosen
        # ½δ² keeps the gradient at δ, equal to the Huber loss near zero
        per_sample = F.huber_loss(chosen, goal, reduction="none") if self.huber else error.square().mul(0.5)
        return QLossOut(per_sample, error.detach().abs(), q.detach())

    @torch.no_grad()
    def _goal(self, online: QNetwork, target: QNetwork, batch: Transitions, q: Tensor) -> Tensor:
        next_q = target(batch.next_obs)  # [B, A]
        if self.munchausen is not None:
            past = q if self.munchausen.policy == "online" else target(batch.obs)
            soft = self.munchausen.soft_value(next_q, next_q.unsqueeze(2)).squeeze(1)
            return batch.reward + self.munchausen.bonus(past, batch.action) + batch.discount * soft
        if self.double:
            best = online(batch.next_obs).argmax(1, keepdim=True)
            next_value = next_q.gather(1, best).squeeze(1)
        else:
            next_value = next_q.amax(1)
        goal: Tensor = batch.reward + batch.discount * next_value  # [B]
        return goal
