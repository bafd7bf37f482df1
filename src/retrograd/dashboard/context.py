"""What every page needs: the reader of the folder, and how runs are chosen and spoken of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from retrograd.dashboard.folder import OutputFolder, RunFolder
from retrograd.dashboard.runs import RunInfo, RunReader

REFRESH_SECONDS = 5


@dataclass(frozen=True)
class Context:
    """One look at the folder; made anew for each drawing of a page."""

    reader: RunReader
    infos: tuple[RunInfo, ...]

    def folder(self, name: str) -> RunFolder:
        return self.reader.folder.runs()[name]

    def info(self, name: str) -> RunInfo:
        return next(info for info in self.infos if info.name == name)

    @property
    def names(self) -> list[str]:
        return [info.name for info in self.infos]


@st.cache_resource(show_spinner=False)
def reader_of(folder: str) -> RunReader:
    return RunReader(OutputFolder(folder))


def look(folder: str) -> Context | None:
    """The folder as it is now; None, with a word to the reader, where there is nothing to look at."""
    reader = reader_of(folder)
    if not reader.folder.exists:
        st.info("This folder does not exist yet. Start a run with `retrograd train`; it will show up here.")
        return None
    infos = tuple(reader.infos())
    if not infos:
        st.info("No runs in this folder yet. Start one with `retrograd train`; it will show up here by itself.")
        return None
    return Context(reader, infos)


def choose_runs(context: Context, key: str, *, label: str = "Runs", default: int = 3) -> list[str]:
    """Several runs; the newest ones at first."""
    kept = [name for name in st.session_state.get(key, context.names[:default]) if name in context.names]
    st.session_state[key] = kept
    return st.multiselect(label, context.names, key=key, placeholder="Choose runs")


def choose_run(context: Context, key: str, *, label: str = "Run", index: int = 0) -> str:
    if st.session_state.get(key) not in context.names:
        st.session_state[key] = context.names[min(index, len(context.names) - 1)]
    return st.selectbox(label, context.names, key=key)


def quote(text: str) -> str:
    """A name inside a sentence of Markdown: every sign that means something is taken literally."""
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|<>$~:])", r"\\\1", text)


def say_problems(context: Context, names: Sequence[str]) -> None:
    for name in names:
        problem = context.info(name).problem
        if problem:
            st.caption(f"{quote(name)}: {problem}")
