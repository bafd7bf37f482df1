"""Game Comparison: evaluation curves of one game over each other, scores in a table; protocols are never mixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from retrograd.dashboard import charts, series
from retrograd.dashboard.context import LAST_SCORE, TRAINING, Context, quote, say_unevaluated
from retrograd.dashboard.runs import RunInfo, measured_alike
from retrograd.dashboard.views.curves import curve

TITLE, ICON = "Game Comparison", ":material/sports_esports:"
MOST_DRAWN = 24  # more lines than that cannot be told apart


def show(context: Context) -> None:
    games = sorted({info.game for info in context.infos})
    if st.session_state.get("games_game") not in games:
        st.session_state["games_game"] = context.infos[0].game
    which, how = st.columns([3, 2], vertical_alignment="bottom")
    game = which.selectbox("Game", games, key="games_game")
    together = how.toggle(
        "Seeds together", value=True, key="games_group", help="runs that differ in their seed become one line"
    )
    infos = [info for info in context.infos if info.game == game]
    protocols = sorted({info.protocol for info in infos})
    if len(protocols) > 1:
        st.warning(
            f"These runs were made under {len(protocols)} protocols ({quote(', '.join(protocols))}). Their scores do "
            "not compare: each protocol has its own line style and its own averages.",
            icon=":material/warning:",
        )
    labels = context.labels([info.name for info in infos])
    _curves(context, infos, protocols, labels if together else {info.name: info.name for info in infos})
    st.subheader("Scores")
    st.dataframe(_scores(infos), hide_index=True, width="stretch", column_config=_COLUMNS)
    _averages(infos, labels)


def _curves(context: Context, infos: list[RunInfo], protocols: list[str], labels: dict[str, str]) -> None:
    drawn = [info for info in infos if info.best_score is not None]
    groups: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
    for info in drawn[:MOST_DRAWN]:
        points = curve(context, info.name, "eval_mean_return", "frames")
        if points is not None:
            groups.setdefault((labels[info.name], info.protocol), []).append(series.thin(*points))
    if not groups:
        st.caption("No run of this game has been evaluated yet.")
        return
    chart = charts.figure(charts.X_TITLES["frames"], charts.describe("eval_mean_return"))
    for index, ((label, protocol), curves) in enumerate(groups.items()):
        marked = label if len(protocols) == 1 or protocol in label else f"{label} [{protocol}]"
        dash = charts.DASHES[protocols.index(protocol) % len(charts.DASHES)]
        charts.add_group(chart, marked, curves, charts.color(index), dash=dash)
    st.plotly_chart(chart, key="games_chart", theme="streamlit")
    if len(drawn) > MOST_DRAWN:
        st.caption(f"Drawn are the {MOST_DRAWN} most recent of {len(drawn)} evaluated runs; the tables hold all.")


def _scores(infos: list[RunInfo]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "run": info.name,
                "agent": info.agent,
                "protocol": info.protocol,
                "seed": info.seed,
                "frames": info.frames,
                "last score": info.last_score,
                "best score": info.best_score,
                "human-normalized": None if info.human_normalized is None else 100 * info.human_normalized,
            }
            for info in infos
        ]
    )


def _averages(infos: list[RunInfo], labels: dict[str, str]) -> None:
    """The interquartile mean of runs that differ in their seed, where there are enough of one protocol."""
    groups: dict[tuple[str, str], list[RunInfo]] = {}
    for info in infos:
        groups.setdefault((labels[info.name], info.protocol), []).append(info)
    rows, left_out = [], []
    for (label, protocol), members in sorted(groups.items()):
        kept, unlike = measured_alike(members)
        left_out += unlike
        if len(kept) >= series.ENOUGH_RUNS:
            scores = np.array([info.last_score for info in kept], float)
            low, high = series.interval(scores)
            mean = series.interquartile_mean(scores)
            what = label if kept[0].evaluated else f"{label} {TRAINING}"
            rows.append(
                {"what": what, "protocol": protocol, "runs": len(scores), "IQM": mean, "low": low, "high": high}
            )
    if rows:
        st.subheader("Interquartile means of the last scores, with 95 % intervals")
        st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch", column_config=_COLUMNS)
    else:
        st.caption(f"Interquartile means appear with {series.ENOUGH_RUNS} runs that differ in their seed alone.")
    say_unevaluated(left_out)


_COLUMNS = {
    "frames": st.column_config.NumberColumn(format="localized"),
    "last score": st.column_config.NumberColumn(format="%.1f", help=LAST_SCORE),
    "best score": st.column_config.NumberColumn(format="%.1f"),
    "human-normalized": st.column_config.NumberColumn(format="%.0f %%", help="0 % random play, 100 % a human tester"),
    "IQM": st.column_config.NumberColumn(format="%.2f"),
    "low": st.column_config.NumberColumn(format="%.2f"),
    "high": st.column_config.NumberColumn(format="%.2f"),
}
