"""Advantages and corrected values of sequences [T, N]: pure, on arrays, nothing to remember.

``discount`` carries γ and termination: γ, or 0 at a step that ended a life or a game. ``cut`` marks the steps after
which the row's sum does not go on: ends, and time limits, whose successor is worth its own ``next_value``.
"""

from __future__ import annotations

import numpy as np

from retrograd.core.types import Array


def gae(reward: Array, discount: Array, value: Array, next_value: Array, cut: Array, *, gae_lambda: float) -> Array:
    """Generalized advantages [T, N] (arXiv:1506.02438, eq. 16); ``next_value`` is of each step's true successor.

    δ_t = r_t + γ_t V(s_{t+1}) - V(s_t);  A_t = δ_t + γ_t λ A_{t+1}
    """
    delta = reward + discount * next_value - value
    decay = discount * gae_lambda * ~cut
    advantage: Array = np.empty_like(delta)
    carried = np.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        carried = delta[t] + decay[t] * carried
        advantage[t] = carried
    return advantage
