"""Scores over many games at once: profiles, aggregates, and who beats whom, all with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np

from retrograd.core import statistics
from retrograd.core.seeding import Streams
from retrograd.experiments.figures.style import Theme, add_legend, new_figure
from retrograd.experiments.measures import ScoreTable, default_thresholds

AGGREGATES = {
    "median": statistics.median,
    "IQM": statistics.iqm,
    "mean": statistics.mean,
    "optimality gap": statistics.optimality_gap,
}
MOST_PAIRS = 12


def draw_profiles(theme: Theme, tables: Sequence[ScoreTable], streams: Streams) -> Any:
    """Share of runs above each human-normalized score; the higher curve is better."""
    figure, axes = new_figure(theme, len(tables), height=4.2)
    for axis, table in zip(axes, tables, strict=True):
        thresholds = default_thresholds(list(table.scores.values()))
        profile = partial(statistics.performance_profile, thresholds=thresholds)
        for index, (label, scores) in enumerate(table.scores.items()):
            interval = statistics.bootstrap_interval(scores, profile, streams[f"profile {table.protocol} {label}"])
            color = theme.color(index)
            style = {"color": color, "linewidth": 1.8, "marker": theme.marker(index), "markersize": 4}
            style["markevery"] = (4 * index % 20, 20)  # staggered, so that curves on top of each other show
            axis.plot(thresholds, interval.point, label=f"{label} · {_runs(scores)}", **style)
            axis.fill_between(thresholds, interval.low, interval.high, color=color, alpha=0.18, linewidth=0)
        axis.axhline(0.5, color=theme.faint, linewidth=0.8, zorder=1)  # here the curves cross their median run
        axis.axvline(1.0, color=theme.faint, linewidth=0.8, zorder=1)
        axis.text(1.0, 1.02, "human", fontsize=7, color=theme.muted, ha="center", va="bottom")
        axis.set_ylim(0.0, 1.02)
        axis.set(xlabel="human-normalized score τ", ylabel="share of runs above τ")
        axis.set_title(_title(table), pad=14)
        add_legend(axis)
    return figure


def draw_aggregates(theme: Theme, tables: Sequence[ScoreTable], streams: Streams) -> Any:
    """Median, IQM, mean and optimality gap of the human-normalized scores; a row of four axes for each protocol."""
    rows = max(len(table.scores) for table in tables)
    figure, axes = new_figure(theme, 4 * len(tables), height=1.2 + 0.32 * rows, width=5.2)
    for place, table in enumerate(tables):
        labels = list(table.scores)
        for axis, (name, statistic) in zip(axes[4 * place :], AGGREGATES.items(), strict=False):
            for index, (label, scores) in enumerate(table.scores.items()):
                rng = streams[f"aggregate {table.protocol} {label} {name}"]
                interval = statistics.bootstrap_interval(scores, statistic, rng)
                _draw_interval(axis, interval, index, theme.color(index))
            axis.set_yticks(range(len(labels)), labels, fontsize=8)
            axis.set_ylim(len(labels) - 0.5, -0.5)
            better = "lower is better" if name == "optimality gap" else "higher is better"
            axis.set(title=f"{name} ({better})", xlabel=f"human-normalized score · {_title(table)}")
    return figure


def draw_improvement(theme: Theme, tables: Sequence[ScoreTable], streams: Streams) -> Any:
    """Chance that a run of the one beats a run of the other, for each pair."""
    pairs = [_pairs(table) for table in tables]
    figure, axes = new_figure(theme, len(tables), height=1.6 + 0.34 * max(len(rows) for rows in pairs))
    for axis, table, rows in zip(axes, tables, pairs, strict=True):
        labels = []
        for index, (ours, theirs) in enumerate(rows):
            rng = streams[f"improvement {table.protocol} {ours} {theirs}"]
            interval = statistics.improvement_interval(table.scores[ours], table.scores[theirs], rng)
            _draw_interval(axis, interval, index, theme.color(0))
            labels.append(f"{ours}  >  {theirs}")
        axis.axvline(0.5, color=theme.faint, linewidth=0.8, zorder=1)
        axis.set_yticks(range(len(labels)), labels, fontsize=8)
        axis.set_ylim(len(labels) - 0.5, -0.5)
        axis.set_xlim(-0.02, 1.02)
        axis.set(title=_title(table), xlabel="probability that a run of the first beats one of the second")
    return figure


def _draw_interval(axis: Any, interval: statistics.Interval, row: int, color: str) -> None:
    axis.plot([interval.low, interval.high], [row, row], color=color, linewidth=7, alpha=0.35, solid_capstyle="butt")
    axis.plot([interval.point], [row], "|", color=color, markersize=13, markeredgewidth=2.5)


def _pairs(table: ScoreTable) -> list[tuple[str, str]]:
    """Each pair once, the better one first."""
    ahead = [
        (ours, theirs)
        for ours, theirs in permutations(table.scores, 2)
        if _leads(table, ours, theirs)
    ]  # fmt: skip
    return ahead[:MOST_PAIRS]


def _leads(table: ScoreTable, ours: str, theirs: str) -> bool:
    chance = float(statistics.probability_of_improvement(table.scores[ours], table.scores[theirs]))
    names = list(table.scores)
    return chance > 0.5 or (chance == 0.5 and names.index(ours) < names.index(theirs))


def _runs(scores: Any) -> str:
    fewest, most = (int(number(np.isfinite(scores).sum(axis=0))) for number in (np.min, np.max))
    return f"{fewest} runs a game" if fewest == most else f"{fewest} to {most} runs a game"


def _title(table: ScoreTable) -> str:
    games = table.games[0] if len(table.games) == 1 else f"{len(table.games)} games"
    return " · ".join(filter(None, (games, table.protocol)))
