"""Scores side by side: algorithms with published figures below them, and one hyperparameter's values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from retrograd.core import statistics
from retrograd.core.seeding import Streams
from retrograd.experiments.curves import ENOUGH_RUNS
from retrograd.experiments.figures import published
from retrograd.experiments.figures.style import Theme, add_legend, count_frames, new_figure
from retrograd.experiments.measures import METRICS, measure_groups
from retrograd.experiments.reference import FinalScore
from retrograd.experiments.runs import Panel, config_value, count_seeds

MOST_BINS = 8


def draw_comparison(
    theme: Theme,
    panels: Sequence[Panel],
    references: bool | Sequence[FinalScore],
    *,
    max_references: int,
    metric: str,
    streams: Streams,
) -> Any:
    below = [published.scores_for(panel, references, max_references) for panel in panels]
    lines = max(len(panel.groups) + len(scores) for panel, scores in zip(panels, below, strict=True))
    figure, axes = new_figure(theme, len(panels), height=1.5 + 0.3 * lines, width=7.6)
    for axis, panel, scores in zip(axes, panels, below, strict=True):
        labels = []
        for index, (group, values) in enumerate(zip(panel.groups, measure_groups(panel, metric), strict=True)):
            rng = streams[f"comparison {panel.title} {group.label}"]
            _draw_values(axis, values, index, theme.color(index), rng)
            unevaluated = metric != "train" and not all(len(run.eval_mean) for run in group.runs)
            kind = " · training return" if unevaluated else ""
            labels.append(f"{group.label} · {count_seeds(len(values))} · {count_frames(group.last_frame)}{kind}")
        for index, score in enumerate(scores, start=len(labels)):
            style = {"color": theme.muted, "markerfacecolor": theme.background, "markersize": 5}
            axis.plot([score.score], [index], "D", **style)
            labels.append(published.final_label(score))
        axis.set_yticks(range(len(labels)), labels, fontsize=8)
        axis.set_ylim(len(labels) - 0.5, -0.5)
        axis.set(title=panel.title, xlabel=METRICS[metric])
    signs = _signs(theme, intervals=any(len(group.runs) >= ENOUGH_RUNS for panel in panels for group in panel.groups))
    figure.legend(
        handles=signs if any(below) else signs[:-1], loc="outside lower center", ncols=4, fontsize=8, frameon=False
    )
    return figure


def draw_sensitivity(theme: Theme, panels: Sequence[Panel], key: str, *, metric: str, streams: Streams) -> Any:
    figure, axes = new_figure(theme, len(panels), height=3.9)
    for axis, panel in zip(axes, panels, strict=True):
        by_value: dict[Any, list[float]] = {}
        for run, score in zip(panel.runs, np.concatenate(measure_groups(panel, metric)), strict=True):
            by_value.setdefault(config_value(run, key), []).append(float(score))
        numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in by_value)
        ordered = sorted(by_value, key=None if numeric else str)
        places = ordered if numeric else list(range(len(ordered)))
        scores = [by_value[value] for value in ordered]
        if numeric and min(ordered) > 0 and max(ordered) / min(ordered) > 20:
            axis.set_xscale("log")
        elif not numeric:
            axis.set_xticks(places, [str(value) for value in ordered])
        for place, values in zip(places, scores, strict=True):
            axis.plot([place] * len(values), values, "o", color=theme.color(0), alpha=0.5, markersize=4)
        label = "median"
        if numeric and len(ordered) > MOST_BINS:  # a search tries each value once: medians of neighbors instead
            places, scores = _bins(places, scores)
            label = "median of neighboring values"
        axis.plot(places, [np.median(values) for values in scores], "-", color=theme.color(0), lw=1.6, label=label)
        if all(len(values) >= ENOUGH_RUNS for values in scores):
            bounds = [_interval(np.array(values), streams[f"sensitivity {key} {place}"])
                      for place, values in zip(places, scores, strict=True)]  # fmt: skip
            low, high = zip(*bounds, strict=True)
            label = "95% interval of the IQM"
            axis.fill_between(places, low, high, color=theme.color(0), alpha=0.15, linewidth=0, label=label)
        axis.set(title=panel.title, xlabel=key, ylabel=METRICS[metric])
        add_legend(axis, ncols=2)
    return figure


def _signs(theme: Theme, *, intervals: bool) -> list[Any]:
    """What the marks mean; the published one comes last."""
    from matplotlib.lines import Line2D

    own: dict[str, Any] = {"color": theme.text, "linestyle": ""}
    signs = [
        Line2D([], [], marker="o", markersize=5, label="one seed", **own),
        Line2D([], [], marker="|", markersize=11, markeredgewidth=2.5, label="median", **own),
    ]
    if intervals:
        signs.append(Line2D([], [], color=theme.text, linewidth=6, alpha=0.3, label="95% interval of the IQM"))
    open_mark: dict[str, Any] = {"markerfacecolor": theme.background, "markersize": 5, "label": "published"}
    return [*signs, Line2D([], [], color=theme.muted, linestyle="", marker="D", **open_mark)]


def _bins(places: Sequence[float], scores: Sequence[list[float]]) -> tuple[list[float], list[list[float]]]:
    """Neighboring values together, about as many runs in each bin; a bin stands at its median value."""
    pairs = [(place, score) for place, values in zip(places, scores, strict=True) for score in values]
    number = max(2, min(MOST_BINS, len(pairs) // 4))
    parts = [part for part in np.array_split(np.array(pairs), number) if len(part)]
    return [float(np.median(part[:, 0])) for part in parts], [part[:, 1].tolist() for part in parts]


def _draw_values(axis: Any, values: Any, row: int, color: str, rng: np.random.Generator) -> None:
    if len(values) >= ENOUGH_RUNS:
        axis.plot(_interval(values, rng), [row, row], "-", color=color, linewidth=6, alpha=0.3, solid_capstyle="butt")
    axis.plot([np.median(values)], [row], "|", color=color, markersize=18, markeredgewidth=2.5)
    axis.plot(values, [row] * len(values), "o", color=color, markersize=5, alpha=0.8)


def _interval(values: Any, rng: np.random.Generator) -> tuple[float, float]:
    interval = statistics.bootstrap_interval(values[:, None], statistics.iqm, rng)
    return float(interval.low), float(interval.high)
