"""The logs of a run as CSV files: append-only, one flushed line per row, equal for equal runs."""

from __future__ import annotations

import csv
import errno
import io
import logging
import os
from collections import deque
from collections.abc import Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from retrograd.core import disk
from retrograd.core.errors import UsageError, suggest
from retrograd.tracking.system import SYSTEM_COLUMNS

COLUMNS: dict[str, tuple[str, ...]] = {
    "train": ("step", "env_frames", "episode_number", "episode_return", "episode_length"),
    "update": (
        "step",
        "env_frames",
        "epsilon",
        "loss",
        "mean_q",
        "max_q",
        "grad_norm",
        "return_mean_100",
        "length_mean_100",
    ),
    "eval": (
        "step",
        "env_frames",
        "eval_type",
        "eval_mean_return",
        "eval_std_return",
        "eval_min_return",
        "eval_max_return",
        "eval_median_return",
        "eval_mean_length",
        "eval_human_normalized",
    ),
}
# they differ between equal runs, so they stand where they are easily cut off
TIME_COLUMNS = (
    "emulate_seconds",
    "act_seconds",
    "sample_seconds",
    "update_seconds",
    *SYSTEM_COLUMNS,
    "steps_per_second",
    "wall_seconds",
)

log = logging.getLogger(__name__)


class CsvSink:
    """``train_log.csv``, ``update_log.csv`` and ``eval_log.csv`` in a run's folder.

    Each file begins with the columns of its table; ``update_columns`` replaces those of the update table
    for algorithms with other figures. What else a row holds gets columns of its own behind them. Rows that the disk
    refuses wait in memory and are written, in order, once it takes them again.
    """

    essential = True  # the run's own record: never switched off

    def __init__(self, folder: Path, *, update_columns: Sequence[str] = COLUMNS["update"]) -> None:
        leading = {**COLUMNS, "update": tuple(update_columns)}
        self._tables = {table: _Table(folder / f"{table}_log.csv", columns) for table, columns in leading.items()}

    def write(self, table: str, row: Mapping[str, Any]) -> None:
        if table not in self._tables:
            known = ", ".join(self._tables)
            raise UsageError(f"table is {table!r}, known are {known}.{suggest(table, self._tables)}")
        self._tables[table].append(row)

    def state_dict(self) -> dict[str, Any]:
        """How many rows each table has now."""
        return {name: table.rows for name, table in self._tables.items()}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        """Drop the rows written since, which a resumed run will write again."""
        for name, table in self._tables.items():
            table.cut_to(int(state.get(name, 0)))

    def begin_again(self) -> None:
        """Drop all rows."""
        self.load_state_dict({})

    def flush(self) -> None:
        """Put all rows on the disk."""
        for table in self._tables.values():
            table.sync()

    def close(self) -> None:
        for table in self._tables.values():
            table.close()


def read_csv(path: Path) -> list[dict[str, Any]]:
    """The rows of a log with numbers as numbers and empty cells as None.

    The last line may be torn, as a killed run leaves it: it is ignored.
    """
    header, rows = _read_lines(path)
    return [{name: _parse(cell) for name, cell in zip(header, row, strict=True)} for row in rows]


class _Table:
    """One file; opened at its first row, so that a table without rows has none."""

    def __init__(self, path: Path, leading: tuple[str, ...]) -> None:
        self._path = path
        self._leading = leading
        self._columns: list[str] = []
        self._file: FileIO | None = None
        self._waiting: deque[Mapping[str, Any]] = deque()
        self.rows = 0

    def append(self, row: Mapping[str, Any]) -> None:
        self._waiting.append(row)
        self._write_waiting()

    def _write_waiting(self) -> None:
        try:
            while self._waiting:
                self._write(self._waiting[0])
                self._waiting.popleft()
        except OSError:
            self.close()  # what was written of the row is a torn last line, which the next opening removes
            raise

    def _write(self, row: Mapping[str, Any]) -> None:
        if self._file is None:
            self._open(row)
        if not row.keys() <= set(self._columns):
            self._widen(row)
        assert self._file is not None
        line = _line([_format(row.get(name)) for name in self._columns]).encode()
        if self._file.write(line) != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._path))
        self.rows += 1

    def _open(self, row: Mapping[str, Any]) -> None:
        header, rows = _read_lines(self._path) if self._path.exists() else ([], [])
        if header:
            self._columns, self.rows = header, len(rows)
            # a torn last line would swallow the next row
            if not _ends_with_newline(self._path):
                self._rewrite(rows)
        else:
            self._columns = self._order(row)
            self._rewrite([])
        self._file = disk.system.append(self._path)

    def _order(self, row: Mapping[str, Any], known: Sequence[str] = ()) -> list[str]:
        names = dict.fromkeys([*(known or self._leading), *row])
        return [name for name in names if name not in TIME_COLUMNS] + [name for name in TIME_COLUMNS if name in names]

    def _widen(self, row: Mapping[str, Any]) -> None:
        """Add the row's new columns; rows before it are empty there."""
        self.close()
        header, rows = _read_lines(self._path)
        self._columns = self._order(row, header)
        place = {name: index for index, name in enumerate(header)}
        self._rewrite([[old[place[name]] if name in place else "" for name in self._columns] for old in rows])
        self._open(row)

    def cut_to(self, count: int) -> None:
        """Keep the first ``count`` rows."""
        self.close()
        self._columns, rows = _read_lines(self._path) if self._path.exists() else ([], [])
        if len(rows) < count:
            log.warning("%s has %d rows, %d were written: some are lost", self._path, len(rows), count)
        if count == 0:
            disk.remove_file(self._path)
        elif self._columns:
            self._rewrite(rows[:count])
        self.rows = min(count, len(rows))

    def _rewrite(self, rows: Sequence[Sequence[str]]) -> None:
        temporary = self._path.with_name(f".tmp-{self._path.name}")
        disk.remove_file(temporary)  # of a run that was killed here
        with disk.system.create(temporary) as file:
            file.writelines(_line(row).encode() for row in [self._columns, *rows])
            disk.system.sync(file)
        disk.system.replace(temporary, self._path)
        disk.sync_folder(self._path.parent)

    def sync(self) -> None:
        self._write_waiting()
        if self._file is not None:
            disk.system.sync(self._file)

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _read_lines(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and rows; without the torn last line, and without lines a power cut made unreadable."""
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = text[: text.rfind("\n") + 1].splitlines()
    if not lines:
        return [], []
    header, *rows = csv.reader(line.replace("\0", "") for line in lines)
    whole = [row for row in rows if len(row) == len(header)]
    if len(whole) < len(rows):
        log.warning("%s: %d unreadable lines ignored", path, len(rows) - len(whole))
    return header, whole


def _ends_with_newline(path: Path) -> bool:
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _format(value: Any) -> str:
    """Text that reads back as the same value."""
    if hasattr(value, "item"):  # numpy and torch scalars
        value = value.item()
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return repr(value)
    return " ".join(str(value).splitlines())  # a row is a line: that is how a torn one is known


def _parse(cell: str) -> Any:
    if not cell:
        return None
    for number in (int, float):
        try:
            return number(cell)
        except ValueError:
            continue
    return cell
