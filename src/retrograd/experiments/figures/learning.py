"""Learning curves: return against frames, a panel for each game and protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from retrograd.core.seeding import Streams
from retrograd.experiments.curves import Band, band_over_seeds
from retrograd.experiments.figures import published
from retrograd.experiments.figures.style import MILLION, Theme, add_legend, frame_unit, new_figure
from retrograd.experiments.reference import Curve
from retrograd.experiments.runs import Group, Panel, RunLog, count_seeds

MOST_GROUPS = 6  # as many as there are colors


def draw_learning_curves(
    theme: Theme,
    panels: Sequence[Panel],
    references: bool | Sequence[Curve],
    *,
    max_references: int,
    max_frames: float | None,
    smooth_episodes: int,
    streams: Streams,
) -> Any:
    below = [published.curves_for(panel, references, max_references) for panel in panels]
    entries = max(
        min(len(panel.groups), MOST_GROUPS) + len(curves) for panel, curves in zip(panels, below, strict=True)
    )
    figure, axes = new_figure(theme, len(panels), height=3.7 + 0.17 * entries)
    for axis, panel, curves in zip(axes, panels, below, strict=True):
        longest = max(group.last_frame for group in panel.groups)
        # published curves have few points before two million frames
        limit = max_frames or max(1.05 * longest, 2 * MILLION if curves else 1)
        unit, axis_label = frame_unit(limit)
        groups, others = _foremost(panel.groups)
        _draw_others(axis, others, theme, unit, smooth_episodes)
        for index, group in enumerate(groups):
            _draw_evaluations(axis, group, theme, index, unit, streams[f"evaluations {panel.title} {group.label}"])
        for index, group in enumerate(groups):
            rng = streams[f"training {panel.title} {group.label}"]
            _draw_training(axis, group, theme.color(index), unit, smooth_episodes, rng)
        published.draw_curves(axis, curves, limit, unit, theme)
        published.draw_baselines(axis, panel.game, theme)
        axis.set(title=panel.title, xlabel=axis_label, ylabel="return of a full game")
        axis.set_xlim(0, limit / unit)
        add_legend(axis)
    return figure


def _foremost(groups: Sequence[Group]) -> tuple[Sequence[Group], Sequence[Group]]:
    """As many groups as can be told apart, those with the best scores where there are more; and the others."""
    if len(groups) <= MOST_GROUPS:
        return groups, ()
    ordered = sorted(groups, key=lambda group: -float(np.mean([run.score for run in group.runs])))
    return ordered[:MOST_GROUPS], ordered[MOST_GROUPS:]


def _draw_others(axis: Any, groups: Sequence[Group], theme: Theme, unit: int, smooth_episodes: int) -> None:
    label = f"{len(groups)} more, with lower scores"
    for run in (run for group in groups for run in group.runs):
        frames, returns = run.curve(smooth_episodes)
        axis.plot(frames / unit, returns, "-", color=theme.faint, linewidth=0.6, zorder=1.2, label=label)
        label = ""


def _draw_evaluations(axis: Any, group: Group, theme: Theme, index: int, unit: int, rng: np.random.Generator) -> None:
    evaluated = [run for run in group.runs if len(run.eval_frames)]
    band = band_over_seeds([(run.eval_frames, run.eval_mean) for run in evaluated], rng)
    if band is None:
        return
    band = _with_episode_spread(band, evaluated)
    label = f"{group.label} · evaluation · {_meaning(band, len(evaluated))}"
    # markers show where evaluations are; among many they would hide the line
    marker = theme.marker(index) if len(band.frames) <= 40 else ""
    _draw_band(axis, band, theme.color(index), unit, marker=marker, markersize=4, label=label)


def _draw_training(
    axis: Any, group: Group, color: str, unit: int, smooth_episodes: int, rng: np.random.Generator
) -> None:
    trained = [run for run in group.runs if len(run.train_frames)]
    band = band_over_seeds([run.training_curve(smooth_episodes) for run in trained], rng)
    if band is None:
        return
    windows = sorted({run.window(smooth_episodes) for run in trained})
    measured = f"training return, mean of {'–'.join(map(str, windows[:1] + windows[1:][-1:]))} episodes"
    if not any(len(run.eval_frames) for run in group.runs):
        _draw_band(axis, band, color, unit, label=f"{group.label} · {measured} · {_meaning(band, len(trained))}")
        return
    label = f"dotted, same color · {measured}"  # said once for all groups
    known = {line.get_label() for line in axis.get_lines()}
    style = {"color": color, "linewidth": 1.3, "zorder": 3, "label": "" if label in known else label}
    axis.plot(band.frames / unit, band.center, ":", **style)


def _meaning(band: Band, seeds: int) -> str:
    return ", ".join(filter(None, (count_seeds(seeds), band.meaning)))


def _draw_band(axis: Any, band: Band, color: str, unit: int, **style: Any) -> None:
    axis.fill_between(band.frames / unit, band.low, band.high, color=color, alpha=0.18, linewidth=0, zorder=2)
    axis.plot(band.frames / unit, band.center, "-", color=color, linewidth=1.8, zorder=3, **style)


def _with_episode_spread(band: Band, runs: Sequence[RunLog]) -> Band:
    """A single run has no spread over seeds: its episodes' is shown, and named."""
    if len(runs) > 1:
        return band
    std = runs[0].eval_std
    if len(std) != len(band.frames):  # thinned out: the episodes' spread has another grid
        return band
    return Band(band.frames, band.center, band.center - std, band.center + std, "± std of episodes")
