"""Overview: every run in one table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pandas as pd
import streamlit as st

from retrograd.dashboard.charts import STATE_SIGNS
from retrograd.dashboard.context import LAST_SCORE, Context
from retrograd.dashboard.runs import RunInfo

TITLE, ICON = "Overview", ":material/table_rows:"


def show(context: Context) -> None:
    counts = {state: sum(info.state == state for info in context.infos) for state in STATE_SIGNS}
    shown = [("all", len(context.infos)), *((state, count) for state, count in counts.items() if count)]
    for column, (state, count) in zip(st.columns(max(len(shown), 5)), shown, strict=False):
        column.metric("runs" if state == "all" else STATE_SIGNS[state], count)
    _filters(context)
    chosen = _wanted(context.infos)
    if not chosen:
        st.caption("No run fits these filters.")
        return
    st.dataframe(
        _table(chosen),
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


def _wanted(infos: Sequence[RunInfo]) -> list[RunInfo]:
    text = st.session_state.get("overview_text", "").casefold()
    chosen = [(name, st.session_state.get(f"overview_{name}")) for name in ("game", "agent", "state")]
    return [
        info
        for info in infos
        if text in info.name.casefold() and all(not values or getattr(info, name) in values for name, values in chosen)
    ]


def _table(infos: Sequence[RunInfo]) -> pd.DataFrame:
    """One row for each run; columns in which no run has anything are left out."""
    columns: dict[str, list[Any]] = {
        "run": [info.name for info in infos],
        "state": [STATE_SIGNS[info.state] for info in infos],
        "progress": [_percent(info.progress) for info in infos],
        "last score": [info.last_score for info in infos],
        "best score": [info.best_score for info in infos],
        "human-normalized": [_percent(info.human_normalized) for info in infos],
        "game": [info.game for info in infos],
        "agent": [info.agent for info in infos],
        "seed": [info.seed for info in infos],
        "frames": [info.frames for info in infos],
        "steps/s": [info.steps_per_second for info in infos],
        "protocol": [info.protocol for info in infos],
        "track": [info.track for info in infos],
        "written": [datetime.fromtimestamp(info.written_at) if info.written_at else None for info in infos],
        "note": [info.problem for info in infos],
    }
    there = {name: values for name, values in columns.items() if any(value not in (None, "") for value in values)}
    return pd.DataFrame(there)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _height(rows: int) -> int:
    return 38 + 35 * min(rows, 16)


_COLUMNS = {
    "run": st.column_config.TextColumn(pinned=True),
    "state": st.column_config.TextColumn(width="small"),
    "progress": st.column_config.ProgressColumn(format="%.0f %%", min_value=0, max_value=100),
    "frames": st.column_config.NumberColumn(format="localized"),
    "steps/s": st.column_config.NumberColumn(format="%.0f"),
    "last score": st.column_config.NumberColumn(format="%.1f", help=LAST_SCORE),
    "best score": st.column_config.NumberColumn(format="%.1f", help="best evaluation"),
    "human-normalized": st.column_config.NumberColumn(format="%.0f %%", help="0 % random play, 100 % a human tester"),
    "written": st.column_config.DatetimeColumn(format="distance"),
}
