"""The figure of an ablation: the curves of all variants, and a bar for what each part brings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retrograd.experiments.ablation import Ablation
from retrograd.experiments.curves import ENOUGH_RUNS
from retrograd.experiments.figures.style import Theme, add_legend, new_figure
from retrograd.experiments.figures.sweep import Curves, draw_group, frame_unit
from retrograd.experiments.groups import Effect, Group, measure_effects
from retrograd.experiments.measures import METRICS


def draw_ablation(
    theme: Theme, series: Ablation, groups: Sequence[Group], curves: Curves, metric: str, title: str = ""
) -> Any:
    """A panel of curves for each of the series' panels, then the bars."""
    lines = {str(group.settings["variant"]): [curves[str(row["run"])] for row in group.rows] for group in groups}
    scale, unit = frame_unit(curve for each in lines.values() for curve in each)
    effects = measure_effects(series, groups)
    figure, axes = new_figure(theme, len(series.panels) + bool(effects), height=4.8)
    for axis, (name, variants) in zip(axes, series.panels.items(), strict=False):
        for place, variant in enumerate(variants):
            draw_group(theme, axis, variant.label, lines.get(variant.name, []), place, scale)
        axis.set(title=name, xlabel=f"emulator frames{unit}", ylabel="return")
        add_legend(axis)
    if effects:
        _draw_bars(theme, axes[-1], effects, metric)
    figure.suptitle(f"{series.title}{f': {title}' if title else ''}", color=theme.text)
    return figure


def _draw_bars(theme: Theme, axis: Any, effects: Sequence[Effect], metric: str) -> None:
    for place, effect in enumerate(effects):
        color = theme.color(0 if effect.variant.adds is not None else 1)
        axis.barh(place, effect.value, color=color, height=0.7, alpha=0.85)
        if effect.low is not None:
            axis.plot([effect.low, effect.high], [place, place], color=theme.text, linewidth=1.2)
    labels = [
        f"+ {effect.variant.adds}" if effect.variant.adds is not None else f"− {effect.variant.removes}"
        for effect in effects
    ]
    axis.set_yticks(range(len(labels)), labels, fontsize=8)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.axvline(0, color=theme.text, linewidth=0.8)
    axis.set(
        title="What each part brings",
        xlabel=f"difference in the {METRICS[metric]}\n"
        "+ with the part minus without it   − lost when it is taken out\n"
        f"line: 95 % bootstrap interval, from {ENOUGH_RUNS} seeds on",
    )
