"""Training Curves: any logged figure, several runs, seeds together, published curves underneath."""

from __future__ import annotations

from typing import Any

import numpy as np
import streamlit as st

from retrograd.dashboard import charts, series
from retrograd.dashboard.context import Context, choose_runs, say_problems
from retrograd.dashboard.runs import TABLES

TITLE, ICON = "Training Curves", ":material/show_chart:"
RETURNS = ("eval_mean_return", "episode_return", "return_mean_100")
NOT_METRICS = {"step", "env_frames", "eval_type", "wall_seconds", "episode_number"}


def show(context: Context) -> None:
    names = choose_runs(context, "curves_runs")
    if not names:
        st.info("Choose at least one run.")
        return
    metrics = _metrics(context, names)
    if not metrics:
        st.info("These runs have not logged anything yet.")
        return
    what, across, how, extra = st.columns([3, 2, 2, 2])
    if st.session_state.get("curves_metric") not in metrics:
        st.session_state["curves_metric"] = metrics[0]
    metric = what.selectbox("Figure", metrics, key="curves_metric")
    x_name = across.selectbox("Against", list(charts.X_TITLES), key="curves_x", format_func=charts.X_TITLES.__getitem__)
    weight = how.slider("Smoothing", 0.0, 0.99, 0.0, 0.01, key="curves_smooth")
    together = extra.toggle("Seeds together", key="curves_group", help="runs that differ in their seed become one line")
    reference = extra.toggle(
        "Published curves",
        key="curves_reference",
        disabled=metric not in RETURNS or x_name != "frames",
        help="of the same game and kind of protocol; only against frames",
    )
    chart = charts.figure(charts.X_TITLES[x_name], metric)
    drawn = _draw(context, names, metric, x_name, weight, together, chart)
    if reference and metric in RETURNS and x_name == "frames":
        _add_published(context, names, chart)
    st.plotly_chart(chart, key="curves_chart", theme="streamlit")
    if not drawn:
        st.caption("None of these runs has logged this figure.")
    say_problems(context, names)


def _metrics(context: Context, names: list[str]) -> list[str]:
    """Returns first, then the rest by name."""
    found = set()
    for name in names:
        for kind in TABLES:
            found |= set(context.reader.table(context.folder(name), kind).columns)
    rest = sorted(found - NOT_METRICS - set(RETURNS))
    return [name for name in RETURNS if name in found] + rest


def curve(context: Context, name: str, metric: str, x_name: str) -> tuple[Any, Any] | None:
    """x and y of one run; None where it has not logged the figure."""
    folder = context.folder(name)
    for kind in TABLES:
        table = context.reader.table(folder, kind)
        if metric in table and len(table):
            kept = table[table[metric].notna()]
            if not len(kept):
                continue
            x = _x(context, name, kept, x_name)
            return None if x is None else (x, kept[metric].to_numpy(float))
    return None


def _x(context: Context, name: str, table: Any, x_name: str) -> Any:
    if x_name != "hours":
        return table["env_frames" if x_name == "frames" else "step"].to_numpy(float)
    clock = context.reader.table(context.folder(name), "update")
    if "wall_seconds" not in clock or not len(clock):
        return None
    return np.interp(table["step"].to_numpy(float), clock["step"], clock["wall_seconds"]) / 3600


def _draw(
    context: Context, names: list[str], metric: str, x_name: str, weight: float, together: bool, chart: Any
) -> bool:
    groups: dict[str, list[tuple[Any, Any]]] = {}
    for name in names:
        points = curve(context, name, metric, x_name)
        if points is not None:
            x, y = series.thin(*points)
            label = context.info(name).group if together else name
            groups.setdefault(label, []).append((x, series.smooth(y, weight)))
    for index, (label, curves) in enumerate(groups.items()):
        shade = charts.color(index)
        if len(curves) == 1:
            charts.add_line(chart, *curves[0], label, shade)
            continue
        grid, values = series.on_grid(curves)
        charts.add_band(chart, grid, values.min(0), values.max(0), shade)
        charts.add_line(chart, grid, values.mean(0), f"{label} ({len(curves)} seeds, mean and range)", shade)
    return bool(groups)


def _add_published(context: Context, names: list[str], chart: Any) -> None:
    asked = {(context.info(name).game, context.info(name).protocol) for name in names}
    found = [(game, curve) for game, protocol in sorted(asked) for curve in series.published(game, protocol)]
    if not found:
        st.caption("No published curve of this game under this protocol is known.")
        return
    labels = [f"{game} · {curve.label}" for game, curve in found]
    chosen = st.multiselect("Published", labels, default=labels[:4], key="curves_published")
    end = max((context.info(name).frames for name in names), default=0)
    for index, (label, (_, curve)) in enumerate(zip(labels, found, strict=True)):
        if label in chosen:
            kept = curve.frames <= max(2 * end, curve.frames[0])  # the run would shrink to nothing beside 200 million
            charts.add_line(chart, curve.frames[kept], curve.score[kept], label, charts.GRAY,
                            dash=charts.DASHES[index % len(charts.DASHES)], width=1.5)  # fmt: skip
