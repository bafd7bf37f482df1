"""Pictures of a sweep: curves and scores of its settings, and how the score hangs on each varied key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from retrograd.core.types import Array
from retrograd.experiments.curves import band_over_seeds
from retrograd.experiments.definition import Definition
from retrograd.experiments.figures.style import Theme, add_legend, new_figure
from retrograd.experiments.groups import Group, by_task
from retrograd.experiments.measures import METRICS
from retrograd.experiments.results import Curve
from retrograd.experiments.runs import count_seeds

STYLES: tuple[Any, ...] = ("-", "--", "-.", (0, (1, 1)))  # a second round of colors differs by its line
SMOOTHING_SHARE = 20  # training episodes are averaged over a twentieth of the run
SHOWN_GROUPS = 8
LISTED_GROUPS = 30
LETTER_INCHES = 0.062  # of a label beside the axis
Curves = Mapping[str, Curve]  # by the run's name


def draw_curves(theme: Theme, groups: Sequence[Group], curves: Curves) -> Any:
    """Return over frames, a panel a task; the best settings in color, the others behind them."""
    tasks = by_task(groups)
    figure, axes = new_figure(theme, len(tasks), height=4.6)
    for axis, (task, members) in zip(axes, tasks.items(), strict=True):
        scale, unit = frame_unit(curves[str(row["run"])] for group in members for row in group.rows)
        for place, group in enumerate(members):
            lines = [curves[str(row["run"])] for row in group.rows]
            draw_group(theme, axis, group_name(group), lines, place if place < SHOWN_GROUPS else None, scale)
        axis.set(title=task, xlabel=f"emulator frames{unit}", ylabel="return")
        add_legend(axis)
    return figure


def draw_group(theme: Theme, axis: Any, label: str, curves: Sequence[Curve], place: int | None, scale: float) -> None:
    """A setting's seeds as one line with a band; without a place it stands in the background."""
    sampled = [smooth(curve) for curve in curves if len(curve.frames)]
    band = band_over_seeds(sampled, np.random.default_rng(0)) if sampled else None
    if band is None:
        return
    frames = band.frames / scale
    if place is None:
        axis.plot(frames, band.center, color=theme.faint, linewidth=0.8, zorder=1)
        return
    color, style = theme.color(place), STYLES[place // len(theme.colors) % len(STYLES)]
    if len(sampled) > 1:
        axis.fill_between(frames, band.low, band.high, color=color, alpha=0.18, linewidth=0, zorder=2)
    label = " · ".join(filter(None, (label, count_seeds(len(sampled)), band.meaning)))
    axis.plot(frames, band.center, color=color, linestyle=style, linewidth=1.8, label=label, zorder=3)


def draw_scores(theme: Theme, groups: Sequence[Group], metric: str) -> Any:
    """A dot a run and a bar at the median, a panel a task, the best setting on top."""
    tasks = {task: members[:LISTED_GROUPS] for task, members in by_task(groups).items()}
    most = max(map(len, tasks.values()))
    width = 5.6 + LETTER_INCHES * max(len(group_name(group)) for shown in tasks.values() for group in shown)
    figure, axes = new_figure(theme, len(tasks), height=1.4 + 0.3 * most, width=width)
    for axis, (task, shown) in zip(axes, tasks.items(), strict=True):
        for place, group in enumerate(shown):
            color = theme.color(place) if place < SHOWN_GROUPS else theme.muted
            axis.plot(group.scores, [place] * len(group.scores), "o", color=color, markersize=5, alpha=0.75)
            axis.plot([group.median], [place], "|", color=color, markersize=16, markeredgewidth=2.5)
        axis.set_yticks(range(len(shown)), [group_name(group) for group in shown], fontsize=8)
        axis.set_ylim(len(shown) - 0.5, -0.5)
        axis.set(title=task, xlabel=f"{METRICS[metric]}\n● run   | median")
    return figure


def draw_sensitivity(theme: Theme, groups: Sequence[Group], keys: Sequence[str], definition: Definition) -> Any:
    """Score against each varied key, task by task; the other keys vary, too: read it as a cloud, not as a curve."""
    tasks = by_task(groups)
    panels = [(task, key) for task in tasks for key in keys]
    figure, axes = new_figure(theme, len(panels), height=3.4)
    for axis, (task, key) in zip(axes, panels, strict=True):
        members = tasks[task]
        best, first = members[0], next((group for group in members if group.trial == 0), None)
        places, names = _places(members, key, definition)
        at = dict(zip(map(id, members), places, strict=True))
        axis.plot(places, [group.mean for group in members], "o", color=theme.color(0), alpha=0.6)
        if first is not None:
            style = {"color": theme.text, "markersize": 9, "mfc": "none", "linestyle": ""}
            axis.plot([at[id(first)]], [first.mean], marker="s", label="trial 0", **style)
        axis.plot([at[id(best)]], [best.mean], "*", color=theme.color(1), markersize=14, label="best")
        span = definition.space.ranges.get(key)
        wide = not names and min(places) > 0 and max(places) / min(places) > 20
        if span.log if span is not None else wide:
            axis.set_xscale("log")
        elif names:
            axis.set_xticks(range(len(names)), names)
        axis.set(title=task, xlabel=key, ylabel="return")
    axes[0].legend(fontsize=8, frameon=False, labelcolor=theme.text)
    figure.suptitle(METRICS[definition.metric], fontsize=10, color=theme.text)
    return figure


def smooth(curve: Curve) -> tuple[Array, Array]:
    """Frames and returns, many training episodes averaged over a window that follows the run's length."""
    window = max(1, len(curve.returns) // SMOOTHING_SHARE)
    if window == 1:
        return curve.frames, curve.returns
    return curve.frames[window - 1 :], np.convolve(curve.returns, np.full(window, 1 / window), mode="valid")


def frame_unit(curves: Iterable[Curve]) -> tuple[float, str]:
    last = max((float(curve.frames[-1]) for curve in curves if len(curve.frames)), default=0.0)
    if last >= 2e6:
        return 1e6, " (millions)"
    return (1e3, " (thousands)") if last >= 2e3 else (1.0, "")


def group_name(group: Group) -> str:
    """``trial 3: lr=0.001``, or the setting alone where nothing was searched; its task is said elsewhere."""
    return group.label_in_task if group.trial is None else f"trial {group.trial}: {group.label_in_task}"


def _places(groups: Sequence[Group], key: str, definition: Definition) -> tuple[list[float], tuple[str, ...]]:
    """Where each group stands on the key's axis: at its number, or at its name's place in the list."""
    texts = [str(group.settings[key]) for group in groups]
    try:
        return [float(text) for text in texts], ()
    except ValueError:
        names = definition.space.lists[key]
        return [float(names.index(text)) for text in texts], names
