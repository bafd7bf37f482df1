"""Ablation Comparator: what each addition to an agent brings, as bars with intervals and as curves."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from retrograd.dashboard import charts, series
from retrograd.dashboard.context import Context
from retrograd.dashboard.pages.config_diff import flatten
from retrograd.dashboard.pages.curves import curve

TITLE, ICON = "Ablation Comparator", ":material/stacked_bar_chart:"
ANY = "Runs of my choice"
NOT_PARTS = ("seed", "run_name", "output_dir", "track")


def show(context: Context) -> None:
    groups = context.reader.folder.series()
    choices = [*groups, ANY]
    if st.session_state.get("ablation_series") not in choices:
        st.session_state["ablation_series"] = choices[0]
    which = st.selectbox("Series", choices, key="ablation_series")
    names = [name for name in groups.get(which, ()) if name in context.names]
    if which == ANY:
        names = st.multiselect("Runs", context.names, context.names[:6], key="ablation_runs")
    variants = _variants(context, names)
    if len(variants) < 2:
        st.info("Choose a series with at least two variants; `retrograd sweep ablation=rainbow` makes one.")
        return
    labels = list(variants)
    base = st.selectbox("Compared with", labels, key="ablation_base")
    _bars(context, variants, base)
    _curves(context, variants)


def _variants(context: Context, names: list[str]) -> dict[str, list[str]]:
    """Runs that differ in more than their seed, named by what differs."""
    configs = {name: dict(flatten(context.reader.config(context.folder(name)))) for name in names}
    configs = {name: config for name, config in configs.items() if config}
    keys = sorted({key for config in configs.values() for key in config} - set(NOT_PARTS))
    differing = [key for key in keys if len({config.get(key, "-") for config in configs.values()}) > 1]
    found: dict[str, list[str]] = {}
    for name, config in configs.items():
        label = ", ".join(f"{_short(key)}={config.get(key, '-')}" for key in differing) or "as configured"
        found.setdefault(label if len(label) < 90 else label[:87] + "…", []).append(name)
    return found


def _short(key: str) -> str:
    """``agent.n_step`` is known as ``n_step``; ``agent.name`` as ``agent``."""
    group, _, last = key.rpartition(".")
    return group if last == "name" and group else last


def _bars(context: Context, variants: dict[str, list[str]], base: str) -> None:
    scores = {label: _scores(context, names) for label, names in variants.items()}
    if not len(scores[base]):
        st.caption("The variant compared with has no score yet.")
        return
    center = series.interquartile_mean(scores[base])
    chart = charts.figure("mean return, difference to the variant compared with", "", height=80 + 44 * len(variants))
    for index, (label, values) in enumerate(scores.items()):
        if not len(values):
            continue
        middle = series.interquartile_mean(values)
        low, high = series.interval(values) if len(values) >= series.ENOUGH_RUNS else (middle, middle)
        chart.add_trace(
            go.Bar(
                y=[charts.plain(label)],
                x=[middle - center],
                orientation="h",
                marker_color=charts.GRAY if label == base else charts.color(index),
                error_x={"type": "data", "array": [high - middle], "arrayminus": [middle - low]},
                hovertemplate=f"%{{y}}<br>{middle:.1f} over {len(values)} run(s)<extra></extra>",
            )
        )
    chart.update_layout(showlegend=False, hovermode="closest")
    st.plotly_chart(chart, key="ablation_bars", theme="streamlit")
    st.caption(f"Interquartile mean of the last scores; 95 % intervals with {series.ENOUGH_RUNS} runs or more.")


def _scores(context: Context, names: list[str]) -> Any:
    values = [context.info(name).last_score for name in names]
    return np.array([value for value in values if value is not None])


def _curves(context: Context, variants: dict[str, list[str]]) -> None:
    chart = charts.figure(charts.X_TITLES["frames"], "mean return")
    for index, (label, names) in enumerate(variants.items()):
        found = _points(context, names, "eval_mean_return") or _points(context, names, "return_mean_100")
        if not found:
            continue
        shade = charts.color(index)
        if len(found) == 1:
            charts.add_line(chart, *found[0], label, shade)
        else:
            grid, values = series.on_grid(found)
            charts.add_band(chart, grid, values.min(0), values.max(0), shade)
            charts.add_line(chart, grid, values.mean(0), f"{label} ({len(found)} seeds)", shade)
    st.plotly_chart(chart, key="ablation_curves", theme="streamlit")


def _points(context: Context, names: list[str], metric: str) -> list[tuple[Any, Any]]:
    """The curves of those runs that have logged the figure."""
    found = (curve(context, name, metric, "frames") for name in names)
    return [points for points in found if points is not None]
