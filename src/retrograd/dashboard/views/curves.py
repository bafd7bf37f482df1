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
NOT_METRICS = {"", "step", "env_frames", "eval_type", "wall_seconds", "episode_number"}
X_COLUMNS = {"frames": "env_frames", "steps": "step", "hours": "step"}


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
    chart = charts.figure(charts.X_TITLES[x_name], charts.describe(metric))
    drawn = _draw(context, names, metric, x_name, weight, together, chart)
    if reference and metric in RETURNS and x_name == "frames":
        _add_published(context, names, chart)
    st.plotly_chart(chart, key="curves_chart", theme="streamlit")
    if not drawn:
        st.caption("None of these runs has logged this figure.")
    say_problems(context, names)


def _metrics(context: Context, names: list[str]) -> list[str]:
    """Returns first, then the rest by name."""
    found: set[str] = set()
    for name in names:
        for kind in TABLES:
            found |= set(context.reader.columns(context.folder(name), kind))
    rest = sorted(found - NOT_METRICS - set(RETURNS))
    return [name for name in RETURNS if name in found] + rest


def curve(context: Context, name: str, metric: str, x_name: str) -> tuple[Any, Any] | None:
    """x and y of one run; None where it has not logged the figure."""
    folder = context.folder(name)
    for kind in TABLES:
        if metric not in context.reader.columns(folder, kind):
            continue
        table = context.reader.table(folder, kind)
        if metric not in table or X_COLUMNS[x_name] not in table:
            continue
        kept = table[table[metric].notna() & table[X_COLUMNS[x_name]].notna()]
        if len(kept):
            x = _x(context, name, kept, x_name)
            return None if x is None else (x, kept[metric].to_numpy(float))
    return None


def _x(context: Context, name: str, table: Any, x_name: str) -> Any:
    along = table[X_COLUMNS[x_name]].to_numpy(float)
    if x_name != "hours":
        return along
    clock = context.reader.table(context.folder(name), "update")
    if "wall_seconds" not in clock or "step" not in clock or not len(clock):
        return None
    return np.interp(along, clock["step"], clock["wall_seconds"]) / 3600


def _draw(
    context: Context, names: list[str], metric: str, x_name: str, weight: float, together: bool, chart: Any
) -> bool:
    labels = context.labels(names) if together else dict(zip(names, names, strict=True))
    groups: dict[str, list[tuple[Any, Any]]] = {}
    for name in names:
        points = curve(context, name, metric, x_name)
        if points is not None:
            x, y = points
            groups.setdefault(labels[name], []).append(series.thin(x, series.smooth(y, weight)))
    for index, (label, curves) in enumerate(groups.items()):
        charts.add_group(chart, label, curves, charts.color(index))
    return bool(groups)


def _add_published(context: Context, names: list[str], chart: Any) -> None:
    asked = {(context.info(name).game, context.info(name).comparable) for name in names}
    found = [(game, curve) for game, protocols in sorted(asked) for curve in series.published(game, protocols)]
    if not found:
        st.caption("No published curve of this game under this protocol is known.")
        return
    agents = {_letters(context.info(name).agent) for name in names}
    found.sort(key=lambda one: not _is_of(one[1].label, agents))  # what ours is to be compared with goes first
    labels = [f"{game} · {curve.label}" for game, curve in found]
    chosen = st.multiselect("Published", labels, default=labels[:4], key="curves_published")
    end = max((context.info(name).frames for name in names), default=0)
    for index, (label, (_, curve)) in enumerate(zip(labels, found, strict=True)):
        if label in chosen:
            kept = curve.frames <= max(2 * end, curve.frames[0])  # the run would shrink to nothing beside 200 million
            charts.add_line(chart, curve.frames[kept], curve.score[kept], label, charts.GRAY,
                            dash=charts.DASHES[index % len(charts.DASHES)], width=1.5)  # fmt: skip


def _is_of(label: str, agents: set[str]) -> bool:
    """Whether a published curve is of one of these agents: its label begins with the algorithm."""
    algorithm = _letters(label.split(" · ")[0])
    return any(agent in algorithm or algorithm in agent for agent in agents)


def _letters(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())
