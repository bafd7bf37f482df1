"""One number for a run, and human-normalized scores of many runs as matrices [seeds, games]."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from retrograd.core import statistics
from retrograd.core.errors import UsageError, suggest
from retrograd.core.types import Array
from retrograd.experiments import efficiency, reference
from retrograd.experiments.runs import Group, Panel, RunLog, name_differences

METRICS = {
    "final": "score of the last evaluation",
    "best": "score of the best evaluation",
    "train": "mean of the last 100 training episodes",
    "auc": "mean return over frames",
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


def measure_groups(panel: Panel, metric: str = "final") -> list[Array]:
    """The scores [S] of each group; areas are taken over the frames that all runs of the panel have seen."""
    if metric != "auc":
        return [np.array([measure(run, metric) for run in group.runs]) for group in panel.groups]
    curves = [run.curve() for run in panel.runs]
    first, last = max(frames[0] for frames, _ in curves), min(frames[-1] for frames, _ in curves)
    if first > last:
        raise UsageError(f"{panel.title}: the runs share no frames, so their areas cannot be compared")
    return [
        np.array([efficiency.area_under_curve(*run.curve(), first=first, last=last) for run in group.runs])
        for group in panel.groups
    ]


def leave_out_unevaluated(panels: Sequence[Panel], metric: str) -> tuple[list[Panel], list[str]]:
    """The panels without runs that have only a training return in groups that have evaluations, and a note of each."""
    if metric == "train":
        return list(panels), []
    kept, notes = [], []
    for panel in panels:
        groups = []
        for group in panel.groups:
            evaluated = tuple(run for run in group.runs if len(run.eval_mean))
            others = [run for run in group.runs if not len(run.eval_mean)] if evaluated else []
            notes += [
                f"{run.folder} has no evaluation, as other seeds of {group.label} have: left out" for run in others
            ]
            groups.append(Group(group.label, evaluated or group.runs))
        kept.append(replace(panel, groups=tuple(groups)))
    return kept, notes


def score_tables(panels: Sequence[Panel], metric: str = "final") -> list[ScoreTable]:
    """Normalized scores by protocol, then algorithm, over the games with a human score that all of them played."""
    by_protocol: dict[str, dict[str, dict[str, list[float]]]] = {}
    firsts: dict[str, RunLog] = {}
    for panel in leave_out_unevaluated(panels, metric)[0]:
        known = reference.baseline(panel.game)
        if known is None:
            continue
        # a panel's own name only says in what it differs from others of its game
        first = panel.runs[0]
        key = json.dumps([first.protocol_label, first.scoring], sort_keys=True, default=str)
        firsts.setdefault(key, first)
        for group, scores in zip(panel.groups, measure_groups(panel, metric), strict=True):
            games = by_protocol.setdefault(key, {}).setdefault(group.label, {})
            games[panel.game] = [float(statistics.human_normalized(score, *known)) for score in scores]
    tables = []
    for key, algorithms in by_protocol.items():
        shared = set.intersection(*(set(games) for games in algorithms.values()))
        if not shared:
            continue
        order = tuple(sorted(shared))
        matrices = {
            label: statistics.score_matrix({game: games[game] for game in order}) for label, games in algorithms.items()
        }
        tables.append(ScoreTable(_protocol_name(firsts[key], list(firsts.values())), order, matrices))
    return tables


def _protocol_name(run: RunLog, firsts: Sequence[RunLog]) -> str:
    rivals = [other.scoring for other in firsts if other.protocol_label == run.protocol_label]
    return " · ".join(filter(None, (run.protocol_label, name_differences(run.scoring, rivals))))


def default_thresholds(matrices: Sequence[Array], count: int = 101) -> Array:
    """From below the lowest score to the 98th percentile of all: one giant score would squeeze the rest together."""
    values = np.concatenate([matrix[np.isfinite(matrix)] for matrix in matrices])
    return np.linspace(min(0.0, float(values.min())), max(1.0, float(np.quantile(values, 0.98))), count)
