"""Config Diff: two runs side by side, what differs marked; the code they ran too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import streamlit as st

from retrograd.dashboard import charts
from retrograd.dashboard.context import Context, choose_run
from retrograd.dashboard.settings import flatten

TITLE, ICON = "Config Diff", ":material/difference:"


def show(context: Context) -> None:
    left, right, how = st.columns([2, 2, 1], vertical_alignment="bottom")
    with left:
        first = choose_run(context, "diff_a", label="Run A", index=0)
    with right:
        second = choose_run(context, "diff_b", label="Run B", index=1)
    only = how.toggle("Only differences", value=True, key="diff_only")
    settings = [context.reader.settings(context.folder(name)) for name in (first, second)]
    _compare("Config", settings, only, "diff_config", (first, second))
    versions = [dict(flatten(context.reader.versions(context.folder(name)))) for name in (first, second)]
    _compare("Code and machine", versions, only, "diff_versions", (first, second))


def _compare(title: str, sides: list[dict[str, str]], only: bool, key: str, names: tuple[str, str]) -> None:
    table = compare(*sides)
    marks = table["differs"] != ""
    st.subheader(f"{title}: {int(marks.sum())} of {len(table)} entries differ")
    if only:
        table = table[marks].drop(columns="differs")  # all of them do
    if not len(table):
        return
    columns: dict[str, Any] = {
        "differs": st.column_config.TextColumn(width="small", help="● where the two runs differ")
    }
    columns |= {f"run {side}": f"{side}: {name}" for side, name in zip("AB", names, strict=True)}
    shown = table if only else table.style.apply(_tint, axis=1)
    st.dataframe(shown, hide_index=True, width="stretch", key=key, column_config=columns)


def _tint(row: pd.Series) -> list[str]:
    """A line that differs stands out by its ground as well as by its mark."""
    return [f"background-color: {charts.faded(charts.PALETTE[1], 0.3)}" if row["differs"] else ""] * len(row)


def compare(first: Mapping[str, str], second: Mapping[str, str]) -> pd.DataFrame:
    """One line for each key of either; a key that a run does not have is ``-``."""
    keys = [*first, *(key for key in second if key not in first)]
    rows = [(key, first.get(key, "-"), second.get(key, "-")) for key in keys]
    return pd.DataFrame(
        [{"differs": "●" if a != b else "", "key": key, "run A": a, "run B": b} for key, a, b in rows],
        columns=["differs", "key", "run A", "run B"],
    )
