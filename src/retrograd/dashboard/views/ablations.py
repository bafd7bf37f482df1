"""Ablation Comparator: what each addition to an agent brings, as bars with intervals and as curves."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from retrograd.dashboard import charts, series
from retrograd.dashboard.context import TRAINING, Context, say_unevaluated
from retrograd.dashboard.runs import measured_alike
from retrograd.dashboard.views.curves import curve

TITLE, ICON = "Ablation Comparator", ":material/stacked_bar_chart:"
ANY = "Runs of my choice"
MOST_RUNS = 6  # chosen at first


def show(context: Context) -> None:
    groups = context.reader.folder.series(context.runs)
    choices = [*groups, ANY]
    if st.session_state.get("ablation_series") not in choices:
        st.session_state["ablation_series"] = choices[0]
    left, right = st.columns(2)
    which = left.selectbox("Series", choices, key="ablation_series")
    names = [name for name in groups.get(which, ()) if name in context.runs]
    if which == ANY:
        names = _choose(context)
    names = _of_one_task(context, [name for name in names if context.reader.settings(context.folder(name))])
    variants: dict[str, list[str]] = {}
    for name, label in context.labels(names).items():
        variants.setdefault(label, []).append(name)
    if len(variants) < 2:
        st.info("Choose a series with at least two variants; `retrograd sweep ablation=rainbow` makes one.")
        return
    if st.session_state.get("ablation_base") not in variants:
        st.session_state["ablation_base"] = next(iter(variants))
    base = right.selectbox("Compared with", list(variants), key="ablation_base")
    _bars(context, variants, base)
    _curves(context, variants)


def _choose(context: Context) -> list[str]:
    kept = [name for name in st.session_state.get("ablation_runs", context.names[:MOST_RUNS]) if name in context.runs]
    st.session_state["ablation_runs"] = kept
    return st.multiselect("Runs", context.names, key="ablation_runs", placeholder="Choose runs")


def _of_one_task(context: Context, names: list[str]) -> list[str]:
    """Scores of different games or protocols are not subtracted from each other: the reader chooses one."""
    tasks = context.tasks(names)
    if len(tasks) < 2:
        return names
    if st.session_state.get("ablation_task") not in tasks:
        st.session_state["ablation_task"] = max(tasks, key=lambda task: len(tasks[task]))  # where there is most to see
    return tasks[st.selectbox("Game and protocol", list(tasks), key="ablation_task")]


def _bars(context: Context, variants: dict[str, list[str]], base: str) -> None:
    kept, left_out = measured_alike(context.info(name) for names in variants.values() for name in names)
    found = {info.name: info.last_score for info in kept}
    scores = {
        label: np.array([found[name] for name in names if name in found], float) for label, names in variants.items()
    }
    say_unevaluated(left_out)
    if not len(scores[base]):
        st.caption("The variant compared with has no score yet.")
        return
    center = series.interquartile_mean(scores[base])
    chart = charts.figure("difference of mean return (points)", "", height=80 + 44 * len(variants))
    for index, (label, values) in enumerate(scores.items()):
        if not len(values):
            continue
        middle = series.interquartile_mean(values)
        low, high = series.interval(values)
        spread = {"type": "data", "array": [high - middle], "arrayminus": [middle - low], "color": charts.GRAY}
        chart.add_trace(
            go.Bar(
                y=[charts.plain(label)],
                x=[middle - center],
                orientation="h",
                marker_color=charts.GRAY if label == base else charts.color(index),
                error_x=spread if len(values) >= series.ENOUGH_RUNS else None,
                hovertemplate=f"%{{y}}<br>{middle:.1f} over {len(values)} run(s)<extra></extra>",
            )
        )
    chart.update_layout(showlegend=False, hovermode="closest")
    chart.update_yaxes(autorange="reversed")  # in the order of the curves below
    st.subheader("What each variant brings")
    st.plotly_chart(chart, key="ablation_bars", theme="streamlit")
    kind = "evaluations" if kept[0].evaluated else "training returns, as no run has an evaluation yet"
    st.caption(
        "Difference to the variant compared with, of the interquartile means of the last scores "
        f"({kind}); 95 % intervals with {series.ENOUGH_RUNS} runs or more."
    )


def _curves(context: Context, variants: dict[str, list[str]]) -> None:
    chart = charts.figure(charts.X_TITLES["frames"], "mean return (points)", height=400)
    for index, (label, names) in enumerate(variants.items()):
        found = _points(context, names, "eval_mean_return")
        if not found:
            label, found = f"{label} {TRAINING}", _points(context, names, "return_mean_100")
        if found:
            charts.add_group(chart, label, found, charts.color(index))
    st.subheader("Learning curves")
    st.plotly_chart(chart, key="ablation_curves", theme="streamlit")


def _points(context: Context, names: list[str], metric: str) -> list[tuple[Any, Any]]:
    """The curves of those runs that have logged the figure."""
    found = (curve(context, name, metric, "frames") for name in names)
    return [series.thin(*points) for points in found if points is not None]
