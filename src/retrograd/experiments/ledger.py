"""What became of every run of a sweep, on the disk before anything else happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from retrograd.core.errors import UsageError
from retrograd.training import durable

FILE = "runs.json"


class State(StrEnum):
    PLANNED = "planned"
    RUNNING = "running"  # seen by a later sweep: it was killed
    STOPPED = "stopped"  # on request, with a checkpoint
    PAUSED = "paused"  # in a race, with a checkpoint
    FINISHED = "finished"
    FAILED = "failed"
    PRUNED = "pruned"

    @property
    def settled(self) -> bool:
        """Nothing is left to do, whatever comes."""
        return self in (State.FINISHED, State.PRUNED)


@dataclass
class Entry:
    state: State = State.PLANNED
    starts: int = 0
    exit_code: int | None = None
    reason: str | None = None
    process: tuple[int, float] | None = None  # its id and when it began: an id alone may belong to another by now


class Ledger:
    """Entries by the run's name, kept in ``runs.json``; every change is written before the call returns."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._entries: dict[str, Entry] = {}
        if self._path.exists():
            try:
                content = json.loads(self._path.read_text(encoding="utf-8"))
                self._entries = {
                    name: Entry(**{**entry, "state": State(entry["state"])}) for name, entry in content.items()
                }
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise UsageError(f"{self._path} cannot be read: {error}") from error

    def __getitem__(self, name: str) -> Entry:
        return self._entries.get(name, Entry())

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def change(self, name: str, state: State, *, exit_code: int | None = None, reason: str | None = None) -> Entry:
        entry = self._entries.setdefault(name, Entry())
        entry.state, entry.exit_code, entry.reason = state, exit_code, reason
        if state is State.RUNNING:
            entry.starts += 1
        self._write()
        return entry

    def note_process(self, name: str, process: tuple[int, float]) -> None:
        """Who runs it, so that a later sweep can end what outlived this one."""
        self._entries[name].process = process
        self._write()

    def _write(self) -> None:
        durable.write_json(self._path, {key: asdict(each) for key, each in self._entries.items()})
