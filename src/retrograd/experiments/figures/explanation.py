"""Telling moments of an explained game with its saliency maps, and the heatmap of visited states."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import missing_extra
from retrograd.core.types import Array
from retrograd.experiments.explanation import Explanation
from retrograd.experiments.figures.overlay import lay_over, reference_size
from retrograd.experiments.figures.style import Theme, add_legend
from retrograd.experiments.figures.values import draw_opinion
from retrograd.experiments.visits import Heatmap

COLUMN_INCHES, ROW_INCHES = 2.7, 3.3


def telling_steps(explanation: Explanation) -> dict[int, str]:
    """Steps worth a look, among those that have maps, with the reason; in the order of play."""
    trace = explanation.trace
    steps = np.asarray(explanation.map_steps or range(len(trace.value)))
    value = trace.value[steps]
    ranks = {"highest value": value, "lowest value": -value}
    preference = trace.q if trace.q is not None else trace.probability
    if preference is not None and preference.shape[1] > 1:
        ordered = np.sort(preference[steps], axis=1)
        ranks["clearest choice"] = ordered[:, -1] - ordered[:, -2]
    if explanation.largest:
        kind, sizes = next(iter(explanation.largest.items()))
        ranks[f"largest {kind} map"] = np.asarray(sizes)
    found: dict[int, list[str]] = {}
    for label, rank in ranks.items():
        found.setdefault(int(steps[rank.argmax()]), []).append(label)
    return {step: ", ".join(found[step]) for step in sorted(found)}


def draw_telling(theme: Theme, explanation: Explanation, title: str) -> Any:
    """A row for each telling step: the picture, the picture under each map, and the opinion of the actions."""
    kinds = list(explanation.largest)
    chosen = telling_steps(explanation)
    opinions = explanation.trace.q is not None or explanation.trace.probability is not None
    columns = 1 + len(kinds) + opinions
    figure, axes = _table(len(chosen), columns)
    figure.suptitle(title, fontsize=11)
    with (
        np.load(explanation.folder / "frames.npz", allow_pickle=False) as frames,
        np.load(explanation.folder / "saliency.npz", allow_pickle=False) as maps,
    ):
        for row, (step, reason) in zip(axes, chosen.items(), strict=True):
            picture = frames[f"frame_{step:06d}"]
            _show(
                row[0],
                picture,
                f"step {step}: {reason}\nvalue {explanation.trace.value[step]:.3g}{_taken(explanation, step)}",
            )
            for axis, kind in zip(row[1:], kinds, strict=False):
                share = _share(explanation, maps, kind, step)
                size = explanation.largest[kind][explanation.map_steps.index(step)]
                _show(axis, lay_over(picture, share), f"{kind.replace('_', ' of ')}\nat most {size:.2g}")
            if opinions:
                axis = row[-1]
                axis.grid(axis="y", color=theme.grid, linewidth=0.6)
                axis.set_axisbelow(True)
                axis.spines[["top", "right"]].set_visible(False)
                draw_opinion(theme, axis, explanation.trace, step)
    if opinions and explanation.trace.mass is not None:
        add_legend(axes[-1][-1], ncols=min(len(explanation.trace.action_names), 3))
    return figure


def draw_visits(theme: Theme, heatmap: Heatmap, title: str) -> Any:
    """Where play was: over the faded background of the screen, or on the plane of two numbers."""
    figure, ((axis,),) = _table(1, 1, inches=(5.2, 4.6))
    share = np.ma.masked_less_equal(heatmap.share, 0)
    if heatmap.background is not None:
        axis.imshow(heatmap.background, cmap="gray", vmin=0, vmax=255, alpha=0.35, interpolation="nearest")
        # how often something is there spans orders of magnitude: the ball is everywhere a little
        image = axis.imshow(share, cmap="inferno", norm=_logarithmic(heatmap), interpolation="nearest", alpha=0.9)
        axis.set_xticks([])
        axis.set_yticks([])
    else:
        image = axis.pcolormesh(heatmap.x_edges, heatmap.y_edges, share, cmap="inferno", norm=_logarithmic(heatmap))
        axis.set(xlabel=heatmap.x_label, ylabel=heatmap.y_label)
    bar = figure.colorbar(image, ax=axis, shrink=0.85)
    bar.set_label("share of the steps")
    bar.ax.tick_params(colors=theme.text)
    axis.set_title(f"{title}\n{heatmap.steps:,} steps")
    return figure


def _logarithmic(heatmap: Heatmap) -> Any:
    from matplotlib.colors import LogNorm

    least = 1 / heatmap.steps
    # a tenth of the least there can be, so that even once is told from never on a dark page
    return LogNorm(vmin=least / 10, vmax=max(float(heatmap.share.max()), 2 * least))


def _table(rows: int, columns: int, inches: tuple[float, float] | None = None) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("Plots", "plots") from error
    figure = Figure(figsize=inches or (COLUMN_INCHES * columns, ROW_INCHES * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _show(axis: Any, picture: Array, title: str) -> None:
    axis.imshow(picture, interpolation="nearest", aspect="equal")
    axis.set_xticks([])
    axis.set_yticks([])
    axis.spines[:].set_visible(False)
    axis.set_title(title, fontsize=8)


def _share(explanation: Explanation, maps: Any, kind: str, step: int) -> Array:
    sizes = np.asarray(explanation.largest[kind])
    size = min(float(sizes[explanation.map_steps.index(step)]) / reference_size(sizes), 1.0)
    share: Array = maps[f"{kind}_{step:06d}"].astype(np.float32) / 255 * size
    return share


def _taken(explanation: Explanation, step: int) -> str:
    trace = explanation.trace
    return f", takes {trace.action_names[int(trace.action[step])]}" if trace.action_names else ""
