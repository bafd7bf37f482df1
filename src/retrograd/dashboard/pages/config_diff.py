"""Config Diff: two runs side by side, what differs marked; the code they ran too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from retrograd.dashboard.context import Context, choose_run

TITLE, ICON = "Config Diff", ":material/difference:"


def show(context: Context) -> None:
    left, right, how = st.columns([2, 2, 1])
    with left:
        first = choose_run(context, "diff_a", label="Run A", index=0)
    with right:
        second = choose_run(context, "diff_b", label="Run B", index=1)
    only = how.toggle("Only differences", value=True, key="diff_only")
    configs = [dict(flatten(context.reader.config(context.folder(name)))) for name in (first, second)]
    _compare("Config", configs, only, "diff_config")
    versions = [dict(flatten(context.reader.versions(context.folder(name)))) for name in (first, second)]
    _compare("Code and machine", versions, only, "diff_versions")


def _compare(title: str, sides: list[dict[str, str]], only: bool, key: str) -> None:
    table = compare(*sides)
    differing = int((table["differs"] != "").sum())
    st.subheader(title)
    st.caption(f"{differing} of {len(table)} entries differ")
    if only:
        table = table[table["differs"] != ""]
    if len(table):
        st.dataframe(table, hide_index=True, width="stretch", key=key)


def compare(first: Mapping[str, str], second: Mapping[str, str]) -> pd.DataFrame:
    """One line for each key of either; a key that a run does not have is ``-``."""
    keys = [*first, *(key for key in second if key not in first)]
    rows = [(key, first.get(key, "-"), second.get(key, "-")) for key in keys]
    return pd.DataFrame(
        [{"differs": "●" if a != b else "", "key": key, "run A": a, "run B": b} for key, a, b in rows],
        columns=["differs", "key", "run A", "run B"],
    )


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """``agent.gamma`` → ``0.99`` and so on, everything as text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(inner, f"{path}.{key}" if path else str(key))
    elif path:
        yield path, "null" if value is None else str(value)
