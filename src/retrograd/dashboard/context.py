"""What every page needs: the reader of the folder, and how runs are chosen and spoken of."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import streamlit as st

from retrograd.dashboard.folder import OutputFolder, RunFolder
from retrograd.dashboard.runs import RunInfo, RunReader
from retrograd.dashboard.settings import label_runs, scoring

REFRESH_SECONDS = 5
LAST_SCORE = "mean return of the last evaluation; before the first one, of the last 100 training games"
TRAINING = "(training return)"


@dataclass(frozen=True)
class Context:
    """One look at the folder; made anew for each drawing of a page."""

    reader: RunReader
    infos: tuple[RunInfo, ...]  # the most recently written first
    runs: Mapping[str, RunFolder]  # as the folder was listed

    def folder(self, name: str) -> RunFolder:
        return self.runs[name]

    def info(self, name: str) -> RunInfo:
        return self._by_name[name]

    @property
    def names(self) -> list[str]:
        return list(self._by_name)

    @cached_property
    def _by_name(self) -> dict[str, RunInfo]:
        return {info.name: info for info in self.infos}

    def labels(self, names: Sequence[str]) -> dict[str, str]:
        """What tells these runs apart; those that differ in their seed alone share a label."""
        if not names:
            return {}
        settings = {name: self.reader.settings(self.folder(name)) for name in names}
        return label_runs(settings, {name: self.info(name).family for name in names})

    def tasks(self, names: Sequence[str]) -> dict[str, list[str]]:
        """Runs by what their scores measure: one game under one protocol. Only those of one task compare."""
        settings = {name: scoring(self.reader.settings(self.folder(name))) for name in names}
        families = {name: (self.info(name).game, self.info(name).protocol) for name in names}
        found: dict[str, list[str]] = {}
        for name, label in label_runs(settings, families).items():
            found.setdefault(label, []).append(name)
        return found


@cache
def reader_of(folder: str) -> RunReader:
    """One for all sessions: what one of them has read the others need not read again."""
    return RunReader(OutputFolder(folder))


def look(folder: str) -> Context | None:
    """The folder as it is now; None, with a word to the reader, where there is nothing to look at."""
    reader = reader_of(folder)
    if not reader.folder.exists:
        st.info("This folder does not exist yet. Start a run with `retrograd train`; it will show up here.")
        return None
    runs = reader.folder.runs()
    infos = tuple(reader.infos(runs.values()))
    if not infos:
        st.info("No runs in this folder yet. Start one with `retrograd train`; it will show up here by itself.")
        return None
    return Context(reader, infos, runs)


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


def say_unevaluated(infos: Sequence[RunInfo]) -> None:
    """Which runs were left out of figures that are of evaluations."""
    if infos:
        st.caption(f"Left out, as they have no evaluation yet: {quote(', '.join(info.name for info in infos))}")


def say_problems(context: Context, names: Sequence[str]) -> None:
    for name in names:
        problem = context.info(name).problem
        if problem:
            st.caption(f"{quote(name)}: {problem}")
