"""Pictures of a sweep: curves and scores of its settings, and how the score hangs on each searched key."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from retrograd.core.errors import missing_extra
from retrograd.core.types import Array
from retrograd.experiments.definition import Definition, make_label
from retrograd.experiments.groups import Group
from retrograd.experiments.results import Curve, read_curve

# Okabe and Ito's palette: told apart with any color vision
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
STYLES: tuple[Any, ...] = ("-", "--", "-.", (0, (1, 1)))  # told apart in print, too
GRID_POINTS = 60
SMOOTHING_SHARE = 20  # training episodes are averaged over a twentieth of the run
BAND_SEEDS = 4  # as many have quartiles worth drawing
SHOWN_GROUPS = 8
LISTED_GROUPS = 30
METRIC_NAMES = {
    "final": "mean return of the final evaluation",
    "best": "mean return of the best evaluation",
    "auc": "mean return over the whole run",
}


def draw_sweep(folder: Path, definition: Definition, groups: Sequence[Group]) -> dict[str, Any]:
    """Name → figure, of what there is to draw."""
    figures: dict[str, Any] = {}
    curves = {str(row["run"]): read_curve(folder / "runs" / str(row["run"])) for group in groups for row in group.rows}
    if any(len(curve.frames) for curve in curves.values()):
        figures["learning_curves"] = draw_curves(groups, curves)
    scored = [group for group in groups if group.scores]
    if scored:
        figures["scores"] = draw_scores(scored, definition.metric)
    keys = [key for key in (*definition.space.lists, *definition.space.ranges) if "." in key]
    if scored and keys:
        figures["sensitivity"] = draw_sensitivity(scored, keys, definition)
    return figures


def draw_curves(groups: Sequence[Group], curves: Mapping[str, Curve]) -> Any:
    """Return over frames, a panel an environment; the best settings in color, the others behind them in gray."""
    environments = list(dict.fromkeys(str(group.settings.get("env", "")) for group in groups))
    figure, axes = new_figure(len(environments), height=4.6)
    for axis, environment in zip(axes, environments, strict=True):
        members = [group for group in groups if str(group.settings.get("env", "")) == environment]
        scale, unit = frame_unit(curves[str(row["run"])] for group in members for row in group.rows)
        for place, group in reversed(list(enumerate(members))):
            lines = [curves[str(row["run"])] for row in group.rows]
            label = make_label({key: value for key, value in group.settings.items() if key != "env"})
            draw_group(axis, label, lines, place if place < SHOWN_GROUPS else None, scale)
        axis.set(title=environment, xlabel=f"frames ({unit})" if unit else "frames", ylabel="return")
        place_legend(axis)
    return figure


def draw_group(axis: Any, label: str, curves: Sequence[Curve], place: int | None, scale: float) -> None:
    """The median over seeds with its quartiles, or the mean from lowest to highest where there are few."""
    sampled = [resample(curve) for curve in curves if len(curve.frames) > 1]
    if not sampled:
        return
    end = min(frames[-1] for frames, _ in sampled)  # no seed is extended beyond its end
    begin = max(frames[0] for frames, _ in sampled)
    if end <= begin:
        return
    grid = np.linspace(begin, end, GRID_POINTS)
    values = np.stack([np.interp(grid, frames, returns) for frames, returns in sampled])  # [S, P]
    enough = len(values) >= BAND_SEEDS
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    if not enough:
        low, middle, high = values.min(axis=0), values.mean(axis=0), values.max(axis=0)
    if place is None:
        axis.plot(grid / scale, middle, color="0.8", linewidth=0.8, zorder=1)
        return
    color, style = COLORS[place % len(COLORS)], STYLES[place // len(COLORS) % len(STYLES)]
    if len(values) > 1:
        axis.fill_between(grid / scale, low, high, color=color, alpha=0.18, linewidth=0, zorder=2)
    seeds = "1 seed" if len(values) == 1 else f"{len(values)} seeds, {'quartiles' if enough else 'lowest to highest'}"
    axis.plot(grid / scale, middle, color=color, linestyle=style, linewidth=1.8, label=f"{label} · {seeds}", zorder=3)


def draw_scores(groups: Sequence[Group], metric: str) -> Any:
    """A dot a run and a bar at the median, the best setting on top."""
    shown = groups[:LISTED_GROUPS]
    figure, (axis,) = new_figure(1, height=1.4 + 0.3 * len(shown))
    for place, group in enumerate(shown):
        color = COLORS[place % len(COLORS)] if place < SHOWN_GROUPS else "0.45"
        axis.plot(group.scores, [place] * len(group.scores), "o", color=color, markersize=5, alpha=0.75)
        axis.plot([group.median], [place], "|", color=color, markersize=16, markeredgewidth=2.5)
    axis.set_yticks(range(len(shown)), [group_name(group) for group in shown], fontsize=8)
    axis.set_ylim(len(shown) - 0.5, -0.5)
    axis.set(xlabel=f"{METRIC_NAMES[metric]}\n● run   | median")
    return figure


def draw_sensitivity(groups: Sequence[Group], keys: Sequence[str], definition: Definition) -> Any:
    """Score against each varied key; the other keys vary, too, so read it as a cloud, not as a curve."""
    figure, axes = new_figure(len(keys), height=3.4)
    best = groups[0]
    first = next((group for group in groups if group.trial == 0), None)
    for axis, key in zip(axes, keys, strict=True):
        span = definition.space.ranges.get(key)
        names = definition.space.lists.get(key, ())
        numeric = span is not None or all(_number(name) is not None for name in names)

        def place(group: Group, key: str = key, numeric: bool = numeric, names: Sequence[str] = names) -> float:
            text = str(group.settings[key])
            return float(text) if numeric else float(names.index(text))

        axis.plot([place(group) for group in groups], [group.mean for group in groups], "o", color=COLORS[0], alpha=0.6)
        if first is not None:
            axis.plot(place(first), first.mean, "s", color="black", markersize=8, mfc="none", label="trial 0")
        axis.plot(place(best), best.mean, "*", color=COLORS[1], markersize=13, label="best")
        wide = numeric and min(map(place, groups)) > 0 and max(map(place, groups)) / min(map(place, groups)) > 20
        if (span is not None and span.log) or (span is None and wide):
            axis.set_xscale("log")
        elif not numeric:
            axis.set_xticks(range(len(names)), names)
        axis.set(xlabel=key, ylabel="return")
        axis.legend(fontsize=8, frameon=False)
    figure.suptitle(METRIC_NAMES[definition.metric], fontsize=10)
    return figure


def resample(curve: Curve) -> tuple[Array, Array]:
    """Frames and returns, many training episodes averaged over a window that follows the run's length."""
    window = max(1, len(curve.returns) // SMOOTHING_SHARE)
    if window == 1:
        return curve.frames, curve.returns
    smooth = np.convolve(curve.returns, np.full(window, 1 / window), mode="valid")
    return curve.frames[window - 1 :], smooth


def new_figure(panels: int, height: float, columns: int = 2) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("Plots", "plots") from error
    columns = min(panels, columns)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(6.4 * columns, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, index + 1) for index in range(panels)]
    for axis in axes:
        axis.grid(color="0.9", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def place_legend(axis: Any) -> None:
    if axis.get_legend_handles_labels()[0]:
        handles, labels = axis.get_legend_handles_labels()
        axis.legend(
            handles[::-1], labels[::-1], loc="upper center", bbox_to_anchor=(0.5, -0.15), fontsize=8, frameon=False
        )


def frame_unit(curves: Any) -> tuple[float, str]:
    last = max((float(curve.frames[-1]) for curve in curves if len(curve.frames)), default=0.0)
    if last >= 2e6:
        return 1e6, "millions"
    return (1e3, "thousands") if last >= 2e3 else (1.0, "")


def group_name(group: Group) -> str:
    return group.label if group.trial is None else f"trial {group.trial}: {group.label}"


def save_figures(figures: Mapping[str, Any], folder: Path) -> list[Path]:
    """PNG and SVG of each; the same data give the same bytes."""
    import matplotlib as mpl

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with mpl.rc_context({"svg.hashsalt": "retrograd"}):
        for name, figure in figures.items():
            for suffix, metadata in ((".png", None), (".svg", {"Date": None})):
                path = folder / f"{name}{suffix}"
                figure.savefig(path, dpi=150, metadata=metadata, facecolor="white")
                paths.append(path)
    return paths


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
