"""Proportional prioritized replay (Schaul et al. 2016, arXiv:1511.05952).

P(i) = p_i^α / Σ_j p_j^α with p_i = |δ_i| + ε;  w_i = (N · P(i))^-β / max_batch w. Sampling is stratified: one draw from
each of B equal parts of the total mass, which leaves P(i) the marginal probability. β grows linearly with the frames.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.schedules import Horizon, Linear, WholeRun
from retrograd.core.types import Array
from retrograd.replay.starts import Starts
from retrograd.replay.sum_tree import SumTree


class Prioritized:
    """New transitions get the largest priority seen so far; what cannot be sampled has none."""

    uses_priorities = True

    def __init__(
        self,
        *,
        alpha: float = 0.6,
        beta_start: float = 0.4,
        beta_end: float = 1.0,
        beta_decay_frames: int = 50_000_000,
        beta_horizon: Horizon | None = None,
        priority_eps: float = 1e-6,
        frames_per_step: int = 4,
    ) -> None:
        """β grows over ``beta_decay_frames``, or over the whole run where its ``beta_horizon`` is given."""
        if not 0.0 <= alpha <= 1.0:
            raise UsageError(f"alpha is {alpha}: must be between 0 and 1")
        for name, beta in (("beta_start", beta_start), ("beta_end", beta_end)):
            if not 0.0 <= beta <= 1.0:
                raise UsageError(f"{name} is {beta}: must be between 0 and 1")
        if priority_eps <= 0.0:
            raise UsageError(f"priority_eps is {priority_eps}: must be above 0, or a transition could vanish")
        if frames_per_step < 1:
            raise UsageError(f"frames_per_step is {frames_per_step}: must be at least 1")
        self.alpha, self.priority_eps, self.frames_per_step = alpha, priority_eps, frames_per_step
        self._beta = Linear(beta_start, beta_end, beta_decay_frames)
        self._whole_run = None if beta_horizon is None else WholeRun(beta_start, beta_end, beta_horizon)
        self.largest = 1.0  # |δ| + ε, not yet raised to α

    def attach(self, num_slots: int) -> None:
        self.tree = SumTree(num_slots)

    def beta(self, step: int) -> float:
        if self._whole_run is not None:
            return self._whole_run(step)
        return self._beta(step * self.frames_per_step)

    def insert(self, slot: Array) -> None:
        self.tree.set(slot, np.full(len(slot), self.largest**self.alpha))

    def remove(self, slot: Array) -> None:
        self.tree.set(slot, np.zeros(len(slot)))

    def draw(
        self, starts: Starts, written: Array, count: int, *, step: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        slot, expected = self.tree.draw(rng.random(count), starts.count)  # [B] N · P(i)
        weight = expected ** -self.beta(step)
        weight /= _largest(weight)
        return slot, weight.astype(np.float32)

    def update(self, slot: Array, priority: Array) -> None:
        if len(slot) == 0:
            return
        raised = priority + self.priority_eps
        self.largest = max(self.largest, _largest(raised))
        self.tree.set(slot, raised**self.alpha)

    def num_bytes(self) -> int:
        return self.tree.nodes.nbytes

    def diagnostics(self) -> dict[str, float]:
        """Quantiles of p^α over what can be sampled, and the effective sample size as a share of it."""
        values = self.tree.values()
        values = values[values > 0]
        if len(values) == 0:
            return {}
        low, middle, high = np.quantile(values, (0.1, 0.5, 0.9))
        share = float(values.sum() ** 2 / (values @ values) / len(values))
        return {
            "priority_q10": float(low),
            "priority_q50": float(middle),
            "priority_q90": float(high),
            "priority_max": float(values.max()),
            "effective_sample_size": share,
        }

    def state_dict(self) -> dict[str, Any]:
        return {"leaves": self.tree.values().copy(), "largest": self.largest}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.tree.load(state["leaves"])
        self.largest = float(state["largest"])

    def check_valid(self, starts: Starts) -> None:
        self.tree.check_valid()
        assert ((self.tree.values() > 0) == starts.valid).all(), "priorities and valid starts disagree"


def _largest(values: Array) -> float:
    # of so few numbers found in half the time of max()
    return float(values[values.argmax()])
