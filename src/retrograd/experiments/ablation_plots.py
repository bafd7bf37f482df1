"""The figures of an ablation: the curves of all variants, and a bar for what each part brings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from retrograd.experiments.ablation import Ablation, Variant
from retrograd.experiments.groups import FEW_SEEDS, Group
from retrograd.experiments.results import read_curve
from retrograd.experiments.sweep_plots import (
    COLORS,
    METRIC_NAMES,
    draw_group,
    frame_unit,
    new_figure,
    place_legend,
)

RESAMPLES = 2_000
CONFIDENCE = 0.95


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


def draw_ablation(folder: Path, series: Ablation, groups: Sequence[Group], metric: str) -> dict[str, Any]:
    """A figure for each environment: a panel of curves for each of the series' panels, then the bars."""
    figures = {}
    others = [tuple((k, v) for k, v in group.settings.items() if k != "variant") for group in groups]
    for setting in dict.fromkeys(others):
        members = [group for group, other in zip(groups, others, strict=True) if other == setting]
        figure = _draw(folder, series, members, metric, ", ".join(value for _, value in setting))
        if figure is not None:
            figures["_".join(["ablation", *(value.replace("/", "-") for _, value in setting)])] = figure
    return figures


def _draw(folder: Path, series: Ablation, groups: Sequence[Group], metric: str, title: str) -> Any:
    by_name = {str(group.settings["variant"]): group for group in groups}
    curves = {
        name: [read_curve(folder / "runs" / str(row["run"])) for row in group.rows] for name, group in by_name.items()
    }
    scale, unit = frame_unit(curve for lines in curves.values() for curve in lines)
    effects = measure_effects(series, groups)
    figure, axes = new_figure(len(series.panels) + bool(effects), height=4.8, columns=3)
    for axis, (name, variants) in zip(axes, series.panels.items(), strict=False):
        for place, variant in reversed(list(enumerate(variants))):
            draw_group(axis, variant.label, curves.get(variant.name, []), place, scale)
        axis.set(title=name, xlabel=f"frames ({unit})" if unit else "frames", ylabel="return")
        place_legend(axis)
    if effects:
        _draw_bars(axes[-1], effects, metric)
    figure.suptitle(f"{series.title}{f': {title}' if title else ''}")
    return figure


def _draw_bars(axis: Any, effects: Sequence[Effect], metric: str) -> None:
    for place, effect in enumerate(effects):
        color = COLORS[0] if effect.variant.adds is not None else COLORS[1]
        axis.barh(place, effect.value, color=color, height=0.7, alpha=0.85)
        if effect.low is not None:
            axis.plot([effect.low, effect.high], [place, place], color="black", linewidth=1.2)
    labels = [
        f"+ {effect.variant.adds}" if effect.variant.adds is not None else f"− {effect.variant.removes}"
        for effect in effects
    ]
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set(title="What each part brings", xlabel=f"difference in the {METRIC_NAMES[metric]}")
    axis.text(
        0.5,
        -0.2,
        "+ score with the part minus without it    − what is lost when it is taken out\n"
        f"line: {CONFIDENCE:.0%} bootstrap interval, from {FEW_SEEDS} seeds on",
        transform=axis.transAxes,
        ha="center",
        va="top",
        fontsize=8,
        color="0.3",
    )


def _difference(variant: Variant, with_part: Any, without: Any) -> Effect:
    value = float(with_part.mean() - without.mean())
    if min(len(with_part), len(without)) < FEW_SEEDS:
        return Effect(variant, value, None, None)
    rng = np.random.default_rng(0)
    means = [each[rng.integers(0, len(each), (RESAMPLES, len(each)))].mean(axis=1) for each in (with_part, without)]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means[0] - means[1], (tail, 1 - tail))
    return Effect(variant, value, float(low), float(high))
