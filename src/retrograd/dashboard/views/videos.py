"""Video Player: scrub through the checkpoints of a run, the game beside its score and the curve; two side by side."""

from __future__ import annotations

from typing import Any

import streamlit as st

from retrograd.dashboard import charts
from retrograd.dashboard.context import Context, choose_run, quote
from retrograd.dashboard.views.curves import curve

TITLE, ICON = "Video Player", ":material/smart_display:"


def show(context: Context) -> None:
    both = st.toggle("Two side by side", key="videos_both")
    for side, column in enumerate(st.columns(2) if both else [st.container()]):
        with column:
            _player(context, side, beside=not both)


def _player(context: Context, side: int, *, beside: bool) -> None:
    name = choose_run(context, f"videos_run_{side}", label=f"Run {'AB'[side]}", index=side)
    found = [entry for entry in context.reader.checkpoints(context.folder(name)) if entry["video"] is not None]
    if not found:
        st.info(f"{quote(name)} has no video yet. One is made at each full evaluation (`eval.record_video=true`).")
        return
    entry = _choose(found, f"videos_step_{side}_{name}")
    watch, facts = st.columns([2, 3]) if beside else (st.container(), st.container())
    with watch:
        st.video(str(entry["video"]))
    with facts:
        score = entry["eval_score"]
        left, right = st.columns(2)
        left.metric("Score of this checkpoint (points)", "not evaluated" if score is None else f"{score:.1f}")
        right.metric("Agent steps", f"{entry['step']:,}")
        _curve_with_marker(context, name, entry, side)
        st.caption(f"saved {quote(str(entry.get('timestamp', '?')))}")


def _choose(found: list[dict[str, Any]], key: str) -> dict[str, Any]:
    if len(found) == 1:
        st.caption("one checkpoint with a video so far")
        return found[0]
    places = list(range(len(found)))
    # the newest as the widget's own default: one set from outside is lost where a refresh overtakes it
    place = st.select_slider(
        "Checkpoint", places, value=places[-1], key=key, format_func=lambda at: f"step {found[at]['step']:,}"
    )
    return found[place]


def _curve_with_marker(context: Context, name: str, entry: dict[str, Any], side: int) -> None:
    points = curve(context, name, "eval_mean_return", "steps") or curve(context, name, "return_mean_100", "steps")
    if points is None:
        return
    chart = charts.figure(charts.X_TITLES["steps"], "mean return (points)", height=300)
    charts.add_line(chart, *points, name, charts.color(side))
    if entry.get("eval_score") is not None:
        charts.add_marks(chart, [entry["step"]], [entry["eval_score"]], "this checkpoint", charts.PALETTE[3])
    chart.update_layout(showlegend=False)
    st.plotly_chart(chart, key=f"videos_chart_{side}", theme="streamlit")
