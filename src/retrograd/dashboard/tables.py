"""CSV files that are still being written: only what is new is read, and only whole lines count."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

HEAD_BYTES = 64  # a file whose beginning changed is another file


@dataclass
class GrowingTable:
    """One CSV file, read piece by piece."""

    path: Path
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    skipped_lines: int = 0
    _offset: int = 0
    _head: bytes = b""
    _stamp: tuple[int, int] = (-1, -1)
    _columns: list[str] = field(default_factory=list)

    def read(self) -> pd.DataFrame:
        """The table as it stands; what cannot be read stays what it was."""
        try:
            stat = os.stat(self.path)
        except OSError:
            return self.frame
        stamp = (stat.st_mtime_ns, stat.st_size)
        if stamp == self._stamp:
            return self.frame
        try:
            with open(self.path, "rb") as file:
                head = file.read(HEAD_BYTES)
                if stat.st_size < self._offset or not head.startswith(self._head[: len(head)]):
                    self._forget()  # cut back by a resumed run, or another file
                self._head = head
                file.seek(self._offset)
                fresh = file.read()
        except OSError:
            return self.frame
        whole = fresh[: fresh.rfind(b"\n") + 1]  # a line without its end is still being written
        self._offset += len(whole)
        self._stamp = stamp
        if whole:
            self._append(whole)
        return self.frame

    def _forget(self) -> None:
        self.frame, self._offset, self._head, self._columns, self.skipped_lines = pd.DataFrame(), 0, b"", [], 0

    def _append(self, whole: bytes) -> None:
        text = whole.decode("utf-8", "replace").replace("\x00", "")
        if not self._columns:
            header, _, text = text.partition("\n")
            self._columns = [name.strip() for name in header.split(",")]
        width = len(self._columns)
        lines = [line for line in text.split("\n") if line.strip()]
        good = [line for line in lines if line.count(",") == width - 1]
        self.skipped_lines += len(lines) - len(good)
        if not good:
            return
        new = pd.read_csv(io.StringIO("\n".join(good)), names=self._columns, header=None, low_memory=False)
        for name in new.columns:
            if name != "eval_type":
                new[name] = pd.to_numeric(new[name], errors="coerce")
        self.frame = new if self.frame.empty else pd.concat([self.frame, new], ignore_index=True)


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
