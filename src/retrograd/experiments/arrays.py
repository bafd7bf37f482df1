"""NPZ files written array by array, so that a long game needs no memory for all of its pictures."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import TracebackType

import numpy as np

from retrograd.core.types import Array


class ArrayWriter:
    """A new NPZ file; the same arrays give the same bytes."""

    def __init__(self, path: Path) -> None:
        self._file = zipfile.ZipFile(path, "x")

    def add(self, name: str, array: Array) -> None:
        entry = zipfile.ZipInfo(f"{name}.npy")  # without the time of day
        entry.compress_type = zipfile.ZIP_DEFLATED
        with self._file.open(entry, "w") as member:
            np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
