"""Advantages and corrected values of sequences [T, N]: pure, on arrays, nothing to remember.

``discount`` carries γ and termination: γ, or 0 at a step that ended a life or a game. ``cut`` marks the steps after
which the row's sum does not go on: ends, and time limits, whose successor is worth its own ``next_value``. The last
step of a sequence needs no mark: nothing follows it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retrograd.core.types import Array


def gae(reward: Array, discount: Array, value: Array, next_value: Array, cut: Array, *, gae_lambda: float) -> Array:
    """Generalized advantages [T, N] (arXiv:1506.02438, eq. 16); ``next_value`` is of each step's true successor.

    δ_t = r_t + γ_t V(s_{t+1}) - V(s_t);  A_t = δ_t + γ_t λ A_{t+1}
    """
    delta = reward + discount * next_value - value
    return _discounted_sum(delta, discount * gae_lambda * ~cut)


def lambda_return(reward: Array, discount: Array, next_value: Array, cut: Array, *, trace_lambda: float) -> Array:
    """λ-returns [T, N]: the mean of all n-step returns, those of more steps weighted down by λ.

    R_t = r_t + γ_t [(1 - λ) V(s_{t+1}) + λ R_{t+1}];  after a cut R_t = r_t + γ_t V(s_{t+1})
    """
    decay = discount * trace_lambda * ~cut
    decay[-1] = 0.0
    # what of the successor's worth the sum itself does not bring
    return _discounted_sum(reward + (discount - decay) * next_value, decay)


@dataclass(frozen=True, slots=True)
class VTrace:
    """Off-policy corrected targets of a critic and an actor."""

    target: Array  # [T, N] v_s, what the value should be
    advantage: Array  # [T, N] ρ_t (r_t + γ_t v_{t+1} - V_t), what the log-probability is weighted with
    rho: Array  # [T, N] ratios as they were used, at most ``rho_clip``


def vtrace(
    log_ratio: Array,
    reward: Array,
    discount: Array,
    value: Array,
    next_value: Array,
    cut: Array,
    *,
    rho_clip: float = 1.0,
    c_clip: float = 1.0,
) -> VTrace:
    """V-trace (arXiv:1802.01561, eq. 1); ``log_ratio`` is log π - log μ of the actions μ has taken.

    ρ_t = min(ρ̄, π/μ);  c_t = min(c̄, π/μ);  δ_t = ρ_t (r_t + γ_t V(s_{t+1}) - V(s_t))
    v_t = V(s_t) + δ_t + γ_t c_t (v_{t+1} - V(s_{t+1}))

    ``rho_clip`` decides what the values converge to, ``c_clip`` only how fast: the paper has 1 for both.
    """
    ratio = np.exp(log_ratio)
    rho, c = np.minimum(ratio, rho_clip), np.minimum(ratio, c_clip)
    delta = rho * (reward + discount * next_value - value)
    target = value + _discounted_sum(delta, discount * c * ~cut)
    # the successor is worth its corrected value where the row goes on, else what the critic says
    following = next_value.copy()
    following[:-1] = np.where(cut[:-1], next_value[:-1], target[1:])
    return VTrace(target, rho * (reward + discount * following - value), rho)


def _discounted_sum(term: Array, decay: Array) -> Array:
    """S_t = term_t + decay_t S_{t+1}, backward over T; the last step's decay meets nothing."""
    total: Array = np.empty_like(term)
    carried = np.zeros_like(term[0])
    for t in range(len(term) - 1, -1, -1):
        carried = term[t] + decay[t] * carried
        total[t] = carried
    return total
