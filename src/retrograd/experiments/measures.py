"""One number for a run, and human-normalized scores of many runs as matrices [seeds, games]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retrograd.core import statistics
from retrograd.core.errors import UsageError, suggest
from retrograd.core.types import Array
from retrograd.experiments import efficiency, reference
from retrograd.experiments.runs import Panel, RunLog

METRICS = {
    "final": "score of the last evaluation",
    "best": "score of the best evaluation",
    "train": "mean of the last 100 training episodes",
    "auc": "mean return over all frames",
}


@dataclass(frozen=True)
class ScoreTable:
    """Human-normalized scores of one protocol: a matrix [S, K] for each algorithm, over the games all have played."""

    protocol: str
    games: tuple[str, ...]
    scores: dict[str, Array]


def check_metric(metric: str) -> None:
    if metric not in METRICS:
        raise UsageError(f"Unknown metric {metric!r}.{suggest(metric, METRICS)} Known are {', '.join(METRICS)}.")


def measure(run: RunLog, metric: str = "final") -> float:
    """The run's score by one of ``METRICS``; ``best`` flatters, for the best of many noisy figures is a lucky one."""
    check_metric(metric)
    if metric == "final":
        return run.score
    if metric == "best":
        return float(run.curve()[1].max())
    if metric == "train":
        if not len(run.train_return):
            raise UsageError(f"{str(run.folder)!r} has no finished training episode to measure")
        return run.training_score
    return efficiency.area_under_curve(*run.curve())


def score_tables(panels: Sequence[Panel], metric: str = "final") -> list[ScoreTable]:
    """Normalized scores by protocol, then algorithm, over the games with a human score that all of them played."""
    by_protocol: dict[str, dict[str, dict[str, list[float]]]] = {}
    for panel in panels:
        known = reference.baseline(panel.game)
        if known is None:
            continue
        for group in panel.groups:
            values = [float(statistics.human_normalized(measure(run, metric), *known)) for run in group.runs]
            games = by_protocol.setdefault(panel.protocol, {}).setdefault(group.label, {})
            games.setdefault(panel.game, []).extend(values)
    tables = []
    for protocol, algorithms in by_protocol.items():
        shared = set.intersection(*(set(games) for games in algorithms.values()))
        if not shared:
            continue
        order = tuple(sorted(shared))
        matrices = {
            label: statistics.score_matrix({game: games[game] for game in order}) for label, games in algorithms.items()
        }
        tables.append(ScoreTable(protocol, order, matrices))
    return tables


def default_thresholds(matrices: Sequence[Array], count: int = 101) -> Array:
    """From below the lowest score to the 98th percentile of all: one giant score would squeeze the rest together."""
    values = np.concatenate([matrix[np.isfinite(matrix)] for matrix in matrices])
    return np.linspace(min(0.0, float(values.min())), max(1.0, float(np.quantile(values, 0.98))), count)
