"""Game Comparison: evaluation curves of one game over each other, scores in a table; protocols are never mixed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import streamlit as st

from retrograd.dashboard import charts, series
from retrograd.dashboard.context import Context
from retrograd.dashboard.pages.curves import curve
from retrograd.dashboard.runs import RunInfo

TITLE, ICON = "Game Comparison", ":material/sports_esports:"


def show(context: Context) -> None:
    games = sorted({info.game for info in context.infos})
    if st.session_state.get("games_game") not in games:
        st.session_state["games_game"] = context.infos[0].game
    game = st.selectbox("Game", games, key="games_game")
    infos = [info for info in context.infos if info.game == game]
    protocols = sorted({info.protocol for info in infos})
    if len(protocols) > 1:
        st.warning(
            f"These runs were made under {len(protocols)} protocols ({', '.join(protocols)}). Their scores do not "
            "compare: each protocol has its own line style and its own averages.",
            icon=":material/warning:",
        )
    chart = charts.figure(charts.X_TITLES["frames"], "mean return of an evaluation")
    for index, info in enumerate(infos):
        points = curve(context, info.name, "eval_mean_return", "frames")
        if points is not None:
            dash = charts.DASHES[protocols.index(info.protocol) % len(charts.DASHES)]
            label = info.name if len(protocols) == 1 else f"{info.name} [{info.protocol}]"
            charts.add_line(chart, *points, label, charts.color(index), dash=dash)
    if chart.data:
        st.plotly_chart(chart, key="games_chart", theme="streamlit")
    else:
        st.caption("No run of this game has been evaluated yet.")
    st.dataframe(_scores(infos), hide_index=True, width="stretch", column_config=_COLUMNS)
    _averages(infos)


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


def _averages(infos: list[RunInfo]) -> None:
    """The interquartile mean of each agent, where enough runs of one protocol have a score."""
    groups: dict[tuple[str, str], list[float]] = {}
    for info in infos:
        if info.last_score is not None:
            groups.setdefault((info.agent, info.protocol), []).append(info.last_score)
    rows = []
    for (agent, protocol), scores in sorted(groups.items()):
        if len(scores) >= series.ENOUGH_RUNS:
            low, high = series.interval(np.array(scores))
            mean = series.interquartile_mean(np.array(scores))
            rows.append(
                {"agent": agent, "protocol": protocol, "runs": len(scores), "IQM": mean, "low": low, "high": high}
            )
    if rows:
        st.subheader("Interquartile means with 95 % intervals")
        st.dataframe(pd.DataFrame(rows), hide_index=True, column_config=_COLUMNS)
    else:
        st.caption(f"Interquartile means appear with {series.ENOUGH_RUNS} evaluated runs of one agent and protocol.")


_COLUMNS = {
    "frames": st.column_config.NumberColumn(format="localized"),
    "last score": st.column_config.NumberColumn(format="%.1f"),
    "best score": st.column_config.NumberColumn(format="%.1f"),
    "human-normalized": st.column_config.NumberColumn(format="%.0f %%"),
    "IQM": st.column_config.NumberColumn(format="%.2f"),
    "low": st.column_config.NumberColumn(format="%.2f"),
    "high": st.column_config.NumberColumn(format="%.2f"),
}
