"""CSV files that are still being written: only what is new is read, and only whole lines count."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as arrow_csv

TEXT_COLUMNS = ("eval_type",)


@dataclass
class GrowingTable:
    """One CSV file, read piece by piece; several sessions may ask at the same time."""

    path: Path
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    skipped_lines: int = 0
    _offset: int = 0
    _file_number: int = -1
    _header: bytes = b""
    _last_line: bytes = b""
    _stamp: tuple[int, int, int] = (-1, -1, -1)
    _columns: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self) -> pd.DataFrame:
        """The table as it stands; what cannot be read stays what it was."""
        with self._lock:
            return self._read()

    def _read(self) -> pd.DataFrame:
        try:
            stat = os.stat(self.path)
            stamp = (stat.st_ino, stat.st_mtime_ns, stat.st_size)
            if stamp == self._stamp:
                return self.frame
            with open(self.path, "rb") as file:
                if not self._goes_on_in(file):
                    self._forget()
                self._file_number = os.fstat(file.fileno()).st_ino
                file.seek(self._offset)
                fresh = file.read()
        except OSError:
            return self.frame
        self._stamp = stamp
        whole = fresh[: fresh.rfind(b"\n") + 1]  # a line without its end is still being written
        if whole:
            self._append(whole)
        return self.frame

    def _goes_on_in(self, file: BinaryIO) -> bool:
        """Whether the file begins with what was read.

        A log that gets more columns, or is cut back by a resumed run, is put in the place of the old one, and may
        have grown past it by now. Numbers of removed files are given out again, so what was read last is compared too.
        """
        if os.fstat(file.fileno()).st_ino != self._file_number or file.readline() != self._header:
            return False
        file.seek(self._offset - len(self._last_line))
        return file.read(len(self._last_line)) == self._last_line

    def _forget(self) -> None:
        self.frame, self._columns, self.skipped_lines = pd.DataFrame(), [], 0
        self._offset, self._header, self._last_line = 0, b"", b""

    def _append(self, whole: bytes) -> None:
        self._offset += len(whole)
        self._last_line = whole[whole.rfind(b"\n", 0, -1) + 1 :]
        if not self._header:
            end = whole.index(b"\n") + 1
            self._header, whole = whole[:end], whole[end:]
            self._columns = column_names(self._header[:-1])
        new = _parse_numbers(whole, self._columns)
        if new is None:
            new = self._parse_what_can_be(whole)
        if len(new):
            self.frame = new if self.frame.empty else pd.concat([self.frame, new], ignore_index=True)

    def _parse_what_can_be(self, whole: bytes) -> pd.DataFrame:
        """Line by line: those of another length are left out, and values that are no numbers are missing."""
        text = whole.decode("utf-8", "replace").replace("\x00", "")
        width = len(self._columns)
        lines = [line for line in text.split("\n") if line.strip()]
        good = [line.rstrip("\r").split(",") for line in lines if line.count(",") == width - 1]
        self.skipped_lines += len(lines) - len(good)
        new = pd.DataFrame(good, columns=self._columns, dtype=object)
        for name in self._columns:
            if name not in TEXT_COLUMNS:
                new[name] = pd.to_numeric(new[name], errors="coerce").astype(float)
        return new


def _parse_numbers(whole: bytes, columns: Sequence[str]) -> pd.DataFrame | None:
    """The quick way; None where a line has another length or a value is no number."""
    if not whole.strip():
        return pd.DataFrame()
    try:
        return _read_arrow(whole, columns).to_pandas()
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return None


def _read_arrow(whole: bytes, columns: Sequence[str], include: Sequence[str] = ()) -> Any:
    """Rows as a table of ``columns``, or of those to ``include`` alone."""
    types = {name: pa.string() if name in TEXT_COLUMNS else pa.float64() for name in columns}
    return arrow_csv.read_csv(
        io.BytesIO(whole),
        read_options=arrow_csv.ReadOptions(column_names=list(columns), use_threads=False),
        parse_options=arrow_csv.ParseOptions(quote_char=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types, null_values=["", "nan", "NaN", "None"], include_columns=list(include)
        ),
    )


def read_columns(path: Path | None, names: Sequence[str]) -> list[np.ndarray]:
    """A few columns of a CSV file without their gaps, for lists of many runs; the rest is not even turned into numbers.

    Empty where there is no such column. Where a line cannot be read it is what a ``GrowingTable`` finds in the file.
    """
    there = [name for name in names if name in header_of(path)]
    found: dict[str, np.ndarray] = {}
    if path is not None and there:
        try:
            table = _read_arrow(_whole_lines(path), header_of(path), include=there)
            found = {name: table[name].drop_null().to_numpy() for name in there}
        except (OSError, pa.ArrowInvalid, pa.ArrowKeyError):
            frame = GrowingTable(path).read()
            found = {name: frame[name].dropna().to_numpy(float) for name in there if name in frame}
    return [found.get(name, np.empty(0)) for name in names]


def _whole_lines(path: Path) -> bytes:
    """All rows that have been written to their end, without the header."""
    text = path.read_bytes()
    return text[text.index(b"\n") + 1 : text.rfind(b"\n") + 1]


def column_names(header: bytes) -> list[str]:
    """Names of the columns, each once: a second one of the same name gets a number."""
    found: list[str] = []
    for place, name in enumerate(header.decode("utf-8", "replace").replace("\x00", "").split(",")):
        found.append(name.strip() if name.strip() not in found else f"{name.strip()}_{place}")
    return found


def header_of(path: Path | None) -> list[str]:
    """The columns of a CSV file, without reading its rows; [] where there is no whole line yet."""
    if path is None:
        return []
    try:
        with open(path, "rb") as file:
            header = file.readline(65_536)
    except OSError:
        return []
    return column_names(header) if header.endswith(b"\n") else []


def last_row(path: Path | None) -> dict[str, str]:
    """The last whole line of a CSV file by column, without reading the rest; {} where there is none."""
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            header = file.readline()
            file.seek(0, os.SEEK_END)
            size = file.tell()
            begin = max(len(header), size - 4096)
            file.seek(begin)
            tail = file.read()
    except OSError:
        return {}
    lines = tail[: tail.rfind(b"\n") + 1].decode("utf-8", "replace").splitlines()
    columns = header.decode("utf-8", "replace").strip().split(",")
    for line in reversed(lines):
        values = line.split(",")
        if len(values) == len(columns):
            return dict(zip(columns, values, strict=True))
    return {}
