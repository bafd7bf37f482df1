"""IMPALA: actors that play with older weights, and a learner that corrects for it by V-trace.

Espeholt et al. 2018, arXiv:1802.01561.
Loss:  -Σ ρ_t (r_t + γ_t v_{t+1} - V(s_t)) log π(a_t|s_t) + c_v ½ Σ (v_t - V(s_t))² - c_e Σ H,
       v_t = V(s_t) + δ_t + γ_t c_t (v_{t+1} - V(s_{t+1})),  ρ = min(ρ̄, π/μ),  c = min(c̄, π/μ).
V-trace is ``core.returns.vtrace``. Differs from the paper: a time limit is no end, v ends with its successor's value.
Defaults: the paper's Atari settings with the network of DQN, in ``configs/agent/impala.yaml``.
Eats Unrolls: the steps of one batch, each row of them played by one version of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from retrograd.agents.a2c import A2CLoss
from retrograd.agents.policy import ActorCriticAgent, PolicyLearner, PolicyLossOut, Sampling, to_device
from retrograd.core.returns import vtrace
from retrograd.core.types import Array, Obs, Rollout, Update
from retrograd.networks.distributions import ActionDistribution
from retrograd.networks.policy import ActorCritic


@dataclass(frozen=True, slots=True)
class Unrolls:
    """T steps of B rows as actors have sent them."""

    obs: Obs  # [T, B, ...]
    action: Array  # [T, B] or [T, B, action_dim]
    log_prob: Array  # [T, B] float32, of the policy that played
    reward: Array  # [T, B] float32
    terminated: Array  # [T, B] bool
    cut: Array  # [T, B] bool: the row's sum does not go on after this step
    # observations that no step shows: behind the last step of each row, and at time limits
    successor_obs: Obs  # [K, ...]
    successor_step: Array  # [K] int64, t of the step they follow
    successor_row: Array  # [K] int64


@dataclass(frozen=True, slots=True)
class SummedLoss:
    """A2C's loss added up over the steps instead of averaged: the published constants are made for sums."""

    mean: A2CLoss

    def __call__(self, policy: ActionDistribution, value: Tensor, batch: Rollout, /, *, step: int) -> PolicyLossOut:
        out = self.mean(policy, value, batch, step=step)
        steps = len(value)
        return replace(out, loss=out.loss * steps, actor=out.actor * steps, critic=out.critic * steps)

    def coefficients(self, step: int) -> dict[str, float]:
        return self.mean.coefficients(step)


class ImpalaAgent(ActorCriticAgent):
    """The learner's side; it acts, too, when it is evaluated."""

    def __init__(
        self,
        network: ActorCritic,
        learner: PolicyLearner,
        sampling: Sampling,
        *,
        gamma: float,
        rho_clip: float,
        c_clip: float,
    ) -> None:
        super().__init__(network, learner, sampling)
        self.gamma, self.rho_clip, self.c_clip = gamma, rho_clip, c_clip

    def update(self, batch: Unrolls, *, step: int) -> Update:
        obs, action = self._flat(batch.obs), self._flat(batch.action)
        policy, value = self.network(obs)  # [T * B]
        with torch.no_grad():
            log_prob = policy.log_prob(action)
            after = self.network.value(to_device(batch.successor_obs, self.device))  # [K]
        shape = batch.reward.shape
        value_now = value.detach().cpu().numpy().reshape(shape)
        corrected = vtrace(
            log_prob.cpu().numpy().reshape(shape) - batch.log_prob,
            batch.reward,
            np.where(batch.terminated, np.float32(0), np.float32(self.gamma)),
            value_now,
            self._next_value(batch, value_now, after.cpu().numpy()),
            batch.cut,
            rho_clip=self.rho_clip,
            c_clip=self.c_clip,
        )
        steps = Rollout(
            obs=obs,
            action=action,
            reward=self._flat(batch.reward),
            log_prob=self._flat(batch.log_prob),
            value=value.detach(),
            advantage=self._flat(corrected.advantage),
            returns=self._flat(corrected.target),
            extras={},
        )
        update = self.learner.learn(lambda: [(policy, value, steps)], steps, step=step)
        return replace(update, metrics={**update.metrics, "rho_mean": float(corrected.rho.mean())})

    @staticmethod
    def _next_value(batch: Unrolls, value: Array, after: Array) -> Array:
        following = np.empty_like(value)  # [T, B]
        following[:-1] = value[1:]
        following[batch.successor_step, batch.successor_row] = after
        return following

    def _flat(self, obs: Any) -> Any:
        """[T, B, ...] → [T * B, ...] on the learner's device."""
        if isinstance(obs, dict):
            return {name: self._flat(array) for name, array in obs.items()}
        return torch.from_numpy(obs).flatten(0, 1).to(self.device)
