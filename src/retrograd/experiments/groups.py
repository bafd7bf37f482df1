"""Runs that differ by their seed alone, taken together: the lines of a sweep's tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from retrograd.core.statistics import Interval, bootstrap_interval, iqm, score_matrix, spread
from retrograd.experiments.definition import make_label
from retrograd.experiments.ledger import State

COLUMNS = {"final": "final_score", "best": "best_score", "auc": "auc"}
FEW_SEEDS = 3  # fewer give no interval
NOT_SETTINGS = {
    "run", "trial", "seed", "state", "step", "env_frames", "final_score", "best_score", "auc", "wall_seconds",
    "steps_per_second", "starts", "exit_code", "reason", "commit", "overrides",
}  # fmt: skip


@dataclass(frozen=True)
class Group:
    """One setting with the scores of its finished runs."""

    settings: Mapping[str, str]
    trial: int | None
    rows: list[Mapping[str, Any]]
    scores: list[float]

    @property
    def label(self) -> str:
        return make_label(self.settings)

    @property
    def mean(self) -> float | None:
        return float(np.mean(self.scores)) if self.scores else None

    @property
    def median(self) -> float | None:
        return spread(self.scores).median if self.scores else None

    @property
    def states(self) -> str:
        """``5 finished, 1 failed``"""
        names = [row["state"] for row in self.rows]
        return ", ".join(f"{names.count(state)} {state}" for state in dict.fromkeys(names))

    def iqm(self) -> Interval | None:
        """The interquartile mean with its interval; nothing is claimed from one or two seeds."""
        if len(self.scores) < FEW_SEEDS:
            return None
        return bootstrap_interval(score_matrix([self.scores]), iqm, np.random.default_rng(0))


def group_rows(rows: Sequence[Mapping[str, Any]], metric: str) -> list[Group]:
    """Groups with the best mean first, those without a score last."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        settings = tuple((key, value) for key, value in row.items() if key not in NOT_SETTINGS)
        found.setdefault((row.get("trial"), settings), []).append(row)
    groups = []
    for (trial, settings), members in found.items():
        finished = [row for row in members if row["state"] == State.FINISHED]
        scores = [float(row[COLUMNS[metric]]) for row in finished if row[COLUMNS[metric]] is not None]
        groups.append(Group(dict(settings), trial, members, scores))
    return sorted(groups, key=lambda group: -np.inf if group.mean is None else group.mean, reverse=True)
