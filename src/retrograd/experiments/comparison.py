"""Runs compared in numbers: a table by game and protocol, what is published beside them, and what to be wary of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from retrograd.core import statistics
from retrograd.core.errors import UsageError
from retrograd.core.seeding import Streams
from retrograd.core.types import Array
from retrograd.experiments import efficiency, reference, stability
from retrograd.experiments.curves import ENOUGH_RUNS, common_grid, on_grid
from retrograd.experiments.known import describe_curve, describe_score
from retrograd.experiments.measures import (
    METRICS,
    check_metric,
    leave_out_unevaluated,
    measure_groups,
    score_tables,
)
from retrograd.experiments.runs import Group, Panel, RunLog, config_value, panels_of

FEW_RUNS = 5  # below this a bootstrap interval is too narrow
AGGREGATES = {
    "mean": statistics.mean,
    "median": statistics.median,
    "iqm": statistics.iqm,
    "optimality_gap": statistics.optimality_gap,
}


@dataclass
class Comparison:
    """Builds the table; ``notes`` collects what a reader has to know."""

    metric: str = "final"
    threshold: float | None = None  # a return, for frames to threshold
    confidence: float = 0.95
    resamples: int = statistics.RESAMPLES
    seed: int = 0  # of the bootstrap
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_metric(self.metric)
        if not 0.0 < self.confidence < 1.0:
            raise UsageError(f"confidence is {self.confidence}: must be between 0 and 1, such as 0.95")

    def table(self, panels: Sequence[Panel], *, references: bool = False) -> dict[str, Any]:
        """Everything as plain numbers, text and lists."""
        panels, unevaluated = leave_out_unevaluated(panels, self.metric)
        self.notes += unevaluated
        if len(panels) > 1:
            titles = "; ".join(panel.title for panel in panels)
            self.notes.append(f"different games or protocols are not mixed: {titles}")
        return {
            "metric": self.metric,
            "measured": METRICS[self.metric],
            "panels": [self._panel(panel, references) for panel in panels],
            "across_games": self._across_games(panels),
            "notes": self.notes,
        }

    def _panel(self, panel: Panel, references: bool) -> dict[str, Any]:
        self._warn(panel)
        scores = measure_groups(panel, self.metric)
        values = {group.label: own for group, own in zip(panel.groups, scores, strict=True)}
        known = reference.baseline(panel.game)
        table: dict[str, Any] = {
            "game": panel.game,
            "protocol": panel.protocol,
            "family": panel.family,
            "baseline": None if known is None else dict(zip(("random", "human"), known, strict=True)),
            "groups": [self._group(panel, group, values[group.label]) for group in panel.groups],
            "improvement": self._improvement(panel.title, {label: scores[:, None] for label, scores in values.items()}),
        }
        if references:
            table["reference"] = self._reference(panel)
        return table

    def _group(self, panel: Panel, group: Group, values: Any) -> dict[str, Any]:
        sample = statistics.spread(values)
        table: dict[str, Any] = {
            "label": group.label,
            "algorithm": group.runs[0].algorithm,
            "seeds": sample.count,
            "env_frames": group.last_frame,
            "scored_on": self._scored_on(group),
            "mean": float(np.mean(values)),
            "median": sample.median,
            "q1": sample.q1,
            "q3": sample.q3,
            "iqm": self._interval(values[:, None], statistics.iqm, f"iqm {panel.title} {group.label}"),
            "human_normalized": None if self.metric == "auc" else reference.human_normalized(sample.median, panel.game),
            "stability": _stability([self._curve(run) for run in group.runs]),
            "runs": [_run(run, value, panel.game) for run, value in zip(group.runs, values, strict=True)],
        }
        if self.threshold is not None:
            reached = [efficiency.frames_to_threshold(*self._curve(run), self.threshold) for run in group.runs]
            table["frames_to_threshold"] = {
                "threshold": self.threshold,
                "reached": sum(run.reached for run in reached),
                "median_frames": efficiency.median_frames_to_threshold(reached),
            }
        return table

    def _scored_on(self, group: Group) -> str:
        evaluated = self.metric != "train" and all(len(run.eval_mean) for run in group.runs)
        return "evaluation" if evaluated else "training return"

    def _curve(self, run: RunLog) -> tuple[Array, Array]:
        return run.training_curve() if self.metric == "train" else run.curve()

    def _interval(self, scores: Any, statistic: Any, name: str) -> dict[str, float | None] | None:
        if min(np.isfinite(scores).sum(axis=0)) < ENOUGH_RUNS:
            return None
        rng, options = Streams(self.seed)[name], {"resamples": self.resamples, "confidence": self.confidence}
        return _plain(statistics.bootstrap_interval(scores, statistic, rng, **options))  # type: ignore[arg-type]

    def _improvement(self, title: str, scores: Mapping[str, Any]) -> list[dict[str, Any]]:
        enough = {label: matrix for label, matrix in scores.items() if np.isfinite(matrix).sum(axis=0).min() >= 2}
        pairs = []
        for first, second in combinations(enough, 2):
            if statistics.probability_of_improvement(enough[first], enough[second]) < 0.5:
                first, second = second, first  # the better one comes first
            rng = Streams(self.seed)[f"improvement {title} {first} {second}"]
            ours, theirs = enough[first], enough[second]
            options = {"resamples": self.resamples, "confidence": self.confidence}
            interval = statistics.improvement_interval(ours, theirs, rng, **options)  # type: ignore[arg-type]
            whole = np.isfinite(ours).all() and np.isfinite(theirs).all()
            p_value = statistics.permutation_p_value(ours, theirs, rng) if whole else None
            pairs.append({"first": first, "second": second, **_plain(interval), "permutation_p_value": p_value})
        return pairs

    def _across_games(self, panels: Sequence[Panel]) -> list[dict[str, Any]]:
        """Human-normalized scores over games of one protocol; nothing where there is a single game."""
        if self.metric == "auc":
            return []
        tables = []
        for table in score_tables(panels, self.metric):
            if len(table.games) < 2:
                continue
            aggregates = {
                label: {
                    name: self._interval(scores, statistic, f"{name} {table.protocol} {label}")
                    or {"point": float(statistic(scores)), "low": None, "high": None, "confidence": None}
                    for name, statistic in AGGREGATES.items()
                }
                for label, scores in table.scores.items()
            }
            improvement = self._improvement(table.protocol, table.scores)
            entry = {"protocol": table.protocol, "games": list(table.games), "human_normalized": aggregates}
            tables.append(entry | {"improvement": improvement})
        return tables

    def _reference(self, panel: Panel) -> dict[str, Any]:
        if panel.family is None:
            self.notes.append(f"{panel.title}: nothing is published under this protocol, so nothing is laid beside it")
            return {"curves": [], "scores": []}
        frames = max(group.last_frame for group in panel.groups)
        curves = [describe_curve(curve, frames) for curve in reference.curves(panel.game, panel.family)]
        scores = [describe_score(score) for score in reference.final_scores(panel.game, panel.family)]
        if curves and all(curve["mean_return"] is None for curve in curves):
            first = min(curve["first_frame"] for curve in curves)
            self.notes.append(
                f"{panel.title}: no published curve has a point at {frames:,} frames; they begin at {first:,}"
            )
        elif {curve["protocol"] for curve in curves} & {"sticky_train", "no_sticky_train"}:
            self.notes.append(
                f"{panel.title}: published 'training return' is not an evaluation; compare like with like"
            )
        return {"at_env_frames": frames, "curves": curves, "scores": scores}

    def _warn(self, panel: Panel) -> None:
        counts = [len(group.runs) for group in panel.groups]
        if min(counts) < ENOUGH_RUNS:
            few = f"fewer than {ENOUGH_RUNS} seeds give no interval, and differences may be chance"
            self.notes.append(f"{panel.title}: {few}")
        elif min(counts) < FEW_RUNS:
            self.notes.append(
                f"{panel.title}: intervals of {min(counts)} seeds are too narrow; take {FEW_RUNS} or more"
            )
        frames = sorted({run.last_frame for run in panel.runs})
        if frames[-1] > 1.05 * frames[0]:
            self.notes.append(f"{panel.title}: the runs stop at different frames, {frames[0]:,} to {frames[-1]:,}")
        epsilons = {str(config_value(run, "eval.epsilon")) for run in panel.runs if _has(run, "epsilon")}
        if len(epsilons) > 1:
            self.notes.append(f"{panel.title}: evaluated with different ε: {', '.join(sorted(epsilons))}")
        if self.metric == "best":
            self.notes.append(f"{panel.title}: the best of many evaluations flatters, the noisier the more")


def drop_repeated_seeds(runs: Sequence[RunLog]) -> tuple[list[RunLog], list[str]]:
    """Of runs with one config and seed the longest is kept: a repetition is no new evidence."""
    notes, kept = [], set()
    for panel in panels_of(runs):
        for group in panel.groups:
            by_seed: dict[Any, list[RunLog]] = {}
            for run in group.runs:
                by_seed.setdefault(str(run.folder) if run.seed is None else run.seed, []).append(run)
            for same in by_seed.values():
                longest = max(same, key=lambda run: run.last_frame)
                kept.add(id(longest))
                others = [run for run in same if run is not longest]
                notes += [f"{run.folder} repeats the seed of {longest.folder}: left out" for run in others]
    return [run for run in runs if id(run) in kept], notes


def _run(run: RunLog, value: float, game: str) -> dict[str, Any]:
    return {
        "run": str(run.folder),
        "seed": run.seed,
        "env_frames": run.last_frame,
        "value": float(value),
        "human_normalized": reference.human_normalized(float(value), game),
    }


def _stability(curves: Sequence[tuple[Array, Array]]) -> dict[str, float | None]:
    """Chan et al.'s measures, the mean over runs for those along a run; None where a curve is too short."""
    long = [curve for curve in curves if len(np.unique(curve[0])) > 2]
    table: dict[str, float | None] = dict.fromkeys(
        ("dispersion_over_time", "short_term_risk", "long_term_risk", "dispersion_over_runs", "risk_over_runs")
    )
    if long:
        table["dispersion_over_time"] = float(np.mean([stability.dispersion_over_time(*curve) for curve in long]))
        table["short_term_risk"] = float(np.mean([stability.short_term_risk(*curve) for curve in long]))
        table["long_term_risk"] = float(np.mean([stability.long_term_risk(curve[1]) for curve in long]))
    if len(curves) >= ENOUGH_RUNS:
        table["risk_over_runs"] = stability.risk_over_runs([float(curve[1][-1]) for curve in curves])
        grid = common_grid(curves)
        if len(grid) > 2:
            table["dispersion_over_runs"] = stability.dispersion_over_runs(on_grid(curves, grid))
    return table


def _plain(interval: statistics.Interval) -> dict[str, float | None]:
    point, low, high = (float(value) for value in (interval.point, interval.low, interval.high))
    return {"point": point, "low": low, "high": high, "confidence": interval.confidence}


def _has(run: RunLog, name: str) -> bool:
    return isinstance(run.config.get("eval"), dict) and name in run.config["eval"]
