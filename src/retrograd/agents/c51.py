"""C51: categorical distributional Q learning; with the other switches, Rainbow's loss.

Bellemare, Dabney, Munos 2017, arXiv:1707.06887; Hessel et al. 2018, arXiv:1710.02298.
Loss:  -Σ_i m_i ln p_i(s, a),  m the projection of r + γ z with masses p_target(s', a*), a* = argmax of the expectation.
Differs from the papers: the priority is the KL divergence, which is the loss less the goal's own entropy, or the loss
itself (``priority``). With Munchausen the goal is the mixture of all next actions' distributions: our own definition.
Defaults: 51 atoms on [-10, 10].  Eats Transitions; the head must output logits [B, A, Z].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from retrograd.agents.munchausen import Munchausen
from retrograd.agents.value import QLossOut, at_action
from retrograd.core.distributional import project_categorical
from retrograd.core.types import Transitions
from retrograd.networks.heads import Categorical
from retrograd.networks.q_network import QNetwork


@dataclass(frozen=True, slots=True)
class C51Loss:
    """Cross-entropy to the projected distribution."""

    double: bool = False
    munchausen: Munchausen | None = None
    priority: str = "kl"  # or cross_entropy

    def __call__(self, online: QNetwork, target: QNetwork, batch: Transitions) -> QLossOut:
        logits = online(batch.obs)  # [B, A, Z]
        q = online.expect(logits.detach())
        goal = self._goal(online, target, batch, q)
        log_p = at_action(logits, batch.action).log_softmax(1)  # [B, Z]
        per_sample = -(goal * log_p).sum(1)
        surprise = per_sample.detach()
        entropy = -torch.xlogy(goal, goal).sum(1)
        priority = (surprise - entropy).clamp(min=0.0) if self.priority == "kl" else surprise
        return QLossOut(per_sample, priority, q, {"goal_entropy": entropy.mean()})

    @torch.no_grad()
    def _goal(self, online: QNetwork, target: QNetwork, batch: Transitions, q: Tensor) -> Tensor:
        """The projected distribution of r + γ Z(s', ·) [B, Z]."""
        assert isinstance(target.distribution, Categorical)
        support = target.distribution.support
        logits = target(batch.next_obs)  # [B, A, Z]
        next_q = target.expect(logits)
        reward, discount = batch.reward.unsqueeze(1), batch.discount.unsqueeze(1)
        if self.munchausen is None:
            best = (online.expect(online(batch.next_obs)) if self.double else next_q).argmax(1)
            return project_categorical(reward + discount * support, at_action(logits, best).softmax(1), support)
        past = q if self.munchausen.policy == "online" else target.expect(target(batch.obs))
        policy, log_policy = self.munchausen.soften(next_q)
        reward = reward + self.munchausen.bonus(past, batch.action).unsqueeze(1)
        places = reward + discount * (support - log_policy.unsqueeze(2)).flatten(1)  # [B, A · Z]
        mass = (policy.unsqueeze(2) * logits.softmax(2)).flatten(1)
        return project_categorical(places, mass, support)
