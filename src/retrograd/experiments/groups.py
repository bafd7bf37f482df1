"""Runs that differ by their seed alone, taken together: the lines of a sweep's tables and pictures.

A sweep may run through environments and protocols: scores of different ones do not compare, so each has its own best
and its own axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from retrograd.core.statistics import RESAMPLES, Interval, bootstrap_interval, iqm, score_matrix, spread
from retrograd.core.types import Array
from retrograd.experiments.ablation import Ablation, Variant
from retrograd.experiments.curves import ENOUGH_RUNS
from retrograd.experiments.definition import make_label
from retrograd.experiments.ledger import State
from retrograd.experiments.runs import FLICKER, SCORING_KEYS

CONFIDENCE = 0.95
COLUMNS = {"final": "final_score", "best": "best_score", "auc": "auc"}
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
    def task(self) -> str:
        """Environment and protocol, as far as the sweep varies them; empty where it does not."""
        varied = {key: value for key, value in self.settings.items() if is_of_task(key)}
        return make_label(varied) if varied else ""

    @property
    def label_in_task(self) -> str:
        return make_label({key: value for key, value in self.settings.items() if not is_of_task(key)})

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
        if len(self.scores) < ENOUGH_RUNS:
            return None
        return bootstrap_interval(score_matrix([self.scores]), iqm, np.random.default_rng(0))


def is_of_task(key: str) -> bool:
    """Whether scores under different values of a key measure different things."""
    group, _, name = key.partition(".")
    return group == "env" or key == "env_protocol" or (group == "env_protocol" and name in (*SCORING_KEYS, FLICKER))


def by_task(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups of each environment and protocol, in their order."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        found.setdefault(group.task, []).append(group)
    return found


def group_rows(rows: Sequence[Mapping[str, Any]], metric: str) -> list[Group]:
    """Task by task, groups with the best mean first, those without a score last."""
    found: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        settings = tuple((key, value) for key, value in row.items() if key not in NOT_SETTINGS)
        found.setdefault((row.get("trial"), settings), []).append(row)
    groups = []
    for (trial, settings), members in found.items():
        finished = [row for row in members if row["state"] == State.FINISHED]
        scores = [float(row[COLUMNS[metric]]) for row in finished if row[COLUMNS[metric]] is not None]
        groups.append(Group(dict(settings), trial, members, scores))
    ordered = sorted(groups, key=lambda group: -np.inf if group.mean is None else group.mean, reverse=True)
    tasks = list(by_task(groups))
    return sorted(ordered, key=lambda group: tasks.index(group.task))


@dataclass(frozen=True)
class Effect:
    """What a part brings: the difference of mean scores, with an interval where there are seeds enough."""

    variant: Variant
    value: float
    low: float | None
    high: float | None


def measure_effects(series: Ablation, groups: Sequence[Group]) -> list[Effect]:
    """Positive is good, whether the part was added to the weaker agent or removed from the stronger one."""
    scores = {str(group.settings["variant"]): group.scores for group in groups}
    effects = []
    for variant in series.bars:
        assert variant.against is not None
        own, other = scores.get(variant.name), scores.get(variant.against)
        if not own or not other:
            continue
        with_part, without = (own, other) if variant.adds is not None else (other, own)
        effects.append(_difference(variant, np.array(with_part), np.array(without)))
    return effects


def _difference(variant: Variant, with_part: Array, without: Array) -> Effect:
    value = float(with_part.mean() - without.mean())
    if min(len(with_part), len(without)) < ENOUGH_RUNS:
        return Effect(variant, value, None, None)
    rng = np.random.default_rng(0)
    means = [each[rng.integers(0, len(each), (RESAMPLES, len(each)))].mean(axis=1) for each in (with_part, without)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means[0] - means[1], (tail, 1 - tail))
    return Effect(variant, value, float(low), float(high))
