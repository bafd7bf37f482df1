"""One look for all charts: colors that the color-blind can tell apart, units on the axes, light and dark alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from retrograd.dashboard import series

# Okabe and Ito's palette, the darkest and the lightest left out: it has to show on white and on black
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#B8A900", "#8C6BB1")
GRAY = "#8A8A8A"
FEW_POINTS = 30
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
STATE_SIGNS = {
    "running": "▶ running",
    "done": "✓ done",
    "stopped": "■ stopped",
    "failed": "✗ failed",
    "broken": "? broken",
}
X_TITLES = {"frames": "emulator frames", "steps": "agent steps", "hours": "hours of training"}
Y_TITLES = {
    "eval_mean_return": "mean return of an evaluation (points)",
    "eval_median_return": "median return of an evaluation (points)",
    "eval_std_return": "deviation of an evaluation's returns (points)",
    "eval_min_return": "lowest return of an evaluation (points)",
    "eval_max_return": "highest return of an evaluation (points)",
    "eval_mean_length": "mean length of an evaluation's games (agent steps)",
    "eval_human_normalized": "human-normalized score (0 random play, 1 a human tester)",
    "episode_return": "return of a game (points)",
    "episode_length": "length of a game (agent steps)",
    "return_mean_100": "mean return of the last 100 games (points)",
    "length_mean_100": "mean length of the last 100 games (agent steps)",
    "epsilon": "share of random actions",
    "mean_q": "mean action value (discounted points)",
    "max_q": "highest action value (discounted points)",
    "grad_norm": "norm of the gradient",
    "steps_per_second": "agent steps per second",
    "replay_bytes": "memory of the replay (bytes)",
    "replay_fill": "filled share of the replay",
    "replay_age_steps": "mean age of a batch (agent steps)",
    "cpu_percent": "processor (% of one core)",
    "gpu_percent": "GPU (%)",
    "memory_gb": "memory (GB)",
    "gpu_memory_gb": "memory of the GPU (GB)",
    "entropy": "entropy of the policy (nats)",
    "approx_kl": "KL divergence of an update (nats)",
    "clip_fraction": "clipped share of a batch",
    "explained_variance": "explained share of the variance of returns",
}
# endings of names that carry their unit
UNITS = {"_seconds": "seconds since the last row", "_bytes": "bytes", "_steps": "agent steps", "_gb": "GB"}


def describe(metric: str) -> str:
    """The name of a logged figure as an axis has it: in words, with its unit."""
    if metric in Y_TITLES:
        return Y_TITLES[metric]
    for ending, unit in UNITS.items():
        if metric.endswith(ending):
            return f"{plain(metric.removesuffix(ending).replace('_', ' '))} ({unit})"
    return plain(metric.replace("_", " "))


def color(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def faded(name: str, share: float = 0.18) -> str:
    red, green, blue = (int(name[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"


def figure(x_title: str, y_title: str, *, height: int = 440) -> go.Figure:
    """An empty chart; colors of text and ground follow the page's theme."""
    empty = go.Figure()
    empty.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 20, "b": 10},
        hovermode="x unified",
        legend={"orientation": "h", "yanchor": "top", "y": -0.18, "x": 0},
        uirevision="keep",  # a refresh does not undo a zoom
    )
    empty.update_xaxes(title=x_title, showgrid=False, zeroline=False)
    empty.update_yaxes(title=y_title, gridcolor="rgba(128,128,128,0.2)", zeroline=False)
    return empty


def add_line(chart: go.Figure, x: Any, y: Any, name: str, shade: str, *, dash: str = "solid", width: float = 2) -> None:
    # few points are shown as such; one alone makes no line
    look = {"mode": "lines"} if len(x) > FEW_POINTS else {"mode": "lines+markers", "marker": {"size": 6}}
    line = {"color": shade, "width": width, "dash": dash}
    chart.add_trace(go.Scatter(x=x, y=y, name=plain(name), line=line, showlegend=True, **look))


def add_band(chart: go.Figure, x: Any, low: Any, high: Any, shade: str) -> None:
    """Between ``low`` and ``high``, behind the line of the same color."""
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    chart.add_trace(go.Scatter(x=x, y=high, **edge))
    chart.add_trace(go.Scatter(x=x, y=low, fill="tonexty", fillcolor=faded(shade), **edge))


def add_group(
    chart: go.Figure, label: str, curves: Sequence[tuple[Any, Any]], shade: str, *, dash: str = "solid"
) -> None:
    """One run as its line; several as their middle with a band, and what the band is in the legend."""
    if len(curves) == 1:
        add_line(chart, *curves[0], label, shade, dash=dash)
        return
    grid, values = series.on_grid(curves)
    band = series.middle_and_band(values)
    add_band(chart, grid, band.low, band.high, shade)
    add_line(chart, grid, band.middle, f"{label} ({len(curves)} seeds: {band.meaning})", shade, dash=dash)


def add_marks(chart: go.Figure, x: Any, y: Any, name: str, shade: str) -> None:
    chart.add_trace(go.Scatter(x=x, y=y, name=plain(name), mode="markers", marker={"color": shade, "size": 10}))


def plain(text: str) -> str:
    """A name as a chart may show it: charts read a few HTML tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
