"""One look for all charts: colors that the color-blind can tell apart, units on the axes, light and dark alike."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

# Okabe and Ito's palette, the darkest and the lightest left out: it has to show on white and on black
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#B8A900", "#8C6BB1")
GRAY = "#8A8A8A"
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
STATE_SIGNS = {
    "running": "▶ running",
    "done": "✓ done",
    "stopped": "■ stopped",
    "failed": "✗ failed",
    "broken": "? broken",
}
X_TITLES = {"frames": "emulator frames", "steps": "agent steps", "hours": "hours of training"}


def color(index: int) -> str:
    return PALETTE[index % len(PALETTE)]


def faded(name: str, share: float = 0.18) -> str:
    red, green, blue = (int(name[at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{share})"


def figure(x_title: str, y_title: str, *, height: int = 460) -> go.Figure:
    """An empty chart; colors of text and ground follow the page's theme."""
    empty = go.Figure()
    empty.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 30, "b": 10},
        hovermode="x unified",
        legend={"orientation": "h", "yanchor": "top", "y": -0.18, "x": 0},
        uirevision="keep",  # a refresh does not undo a zoom
    )
    empty.update_xaxes(title=x_title, showgrid=False, zeroline=False)
    empty.update_yaxes(title=y_title, gridcolor="rgba(128,128,128,0.2)", zeroline=False)
    return empty


def add_line(chart: go.Figure, x: Any, y: Any, name: str, shade: str, *, dash: str = "solid", width: float = 2) -> None:
    chart.add_trace(
        go.Scatter(x=x, y=y, name=plain(name), mode="lines", line={"color": shade, "width": width, "dash": dash})
    )


def add_band(chart: go.Figure, x: Any, low: Any, high: Any, shade: str) -> None:
    """Between ``low`` and ``high``, behind the line of the same color."""
    edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
    chart.add_trace(go.Scatter(x=x, y=high, **edge))
    chart.add_trace(go.Scatter(x=x, y=low, fill="tonexty", fillcolor=faded(shade), **edge))


def add_marks(chart: go.Figure, x: Any, y: Any, name: str, shade: str) -> None:
    chart.add_trace(go.Scatter(x=x, y=y, name=plain(name), mode="markers", marker={"color": shade, "size": 10}))


def plain(text: str) -> str:
    """A name as a chart may show it: charts read a few HTML tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
