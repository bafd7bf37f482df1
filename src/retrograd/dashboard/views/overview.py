"""Overview: every run in one table."""

from __future__ import annotations

from datetime import datetime

import pandas as pd
import streamlit as st

from retrograd.dashboard.charts import STATE_SIGNS
from retrograd.dashboard.context import Context
from retrograd.dashboard.runs import RunInfo

TITLE, ICON = "Overview", ":material/table_rows:"


def show(context: Context) -> None:
    counts = {state: sum(info.state == state for info in context.infos) for state in STATE_SIGNS}
    shown = [("all", len(context.infos)), *((state, count) for state, count in counts.items() if count)]
    for column, (state, count) in zip(st.columns(max(len(shown), 5)), shown, strict=False):
        column.metric("runs" if state == "all" else STATE_SIGNS[state], count)
    _filters(context)
    chosen = [info for info in context.infos if _wanted(info)]
    if not chosen:
        st.caption("No run fits these filters.")
        return
    table = _table(chosen)
    empty = [name for name in table if table[name].isna().all() or (table[name] == "").all()]
    st.dataframe(
        table.drop(columns=empty),
        hide_index=True,
        width="stretch",
        height=_height(len(chosen)),
        column_config=_COLUMNS,
        key="overview_table",
    )


def _filters(context: Context) -> None:
    text, game, agent, state = st.columns([2, 1, 1, 1])
    text.text_input("Search", key="overview_text", placeholder="part of a name")
    game.multiselect("Game", sorted({info.game for info in context.infos}), key="overview_game")
    agent.multiselect("Agent", sorted({info.agent for info in context.infos}), key="overview_agent")
    state.multiselect("State", sorted({info.state for info in context.infos}), key="overview_state")


def _wanted(info: RunInfo) -> bool:
    text = st.session_state.get("overview_text", "").casefold()
    chosen = {name: st.session_state.get(f"overview_{name}") for name in ("game", "agent", "state")}
    return text in info.name.casefold() and all(
        not values or getattr(info, name) in values for name, values in chosen.items()
    )


def _table(infos: list[RunInfo]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "run": info.name,
                "state": STATE_SIGNS[info.state],
                "progress": None if info.progress is None else 100 * info.progress,
                "last score": info.last_score,
                "best score": info.best_score,
                "human-normalized": None if info.human_normalized is None else 100 * info.human_normalized,
                "game": info.game,
                "agent": info.agent,
                "seed": info.seed,
                "frames": info.frames,
                "steps/s": info.steps_per_second,
                "protocol": info.protocol,
                "track": info.track,
                "written": datetime.fromtimestamp(info.written_at) if info.written_at else None,
                "note": info.problem,
            }
            for info in infos
        ]
    )


def _height(rows: int) -> int:
    return 38 + 35 * min(rows, 16)


_COLUMNS = {
    "run": st.column_config.TextColumn(pinned=True),
    "state": st.column_config.TextColumn(width="small"),
    "progress": st.column_config.ProgressColumn(format="%.0f %%", min_value=0, max_value=100),
    "frames": st.column_config.NumberColumn(format="localized"),
    "steps/s": st.column_config.NumberColumn(format="%.0f"),
    "last score": st.column_config.NumberColumn(format="%.1f", help="mean return of the last evaluation"),
    "best score": st.column_config.NumberColumn(format="%.1f", help="best evaluation"),
    "human-normalized": st.column_config.NumberColumn(format="%.0f %%", help="0 % random play, 100 % a human tester"),
    "written": st.column_config.DatetimeColumn(format="distance"),
}
