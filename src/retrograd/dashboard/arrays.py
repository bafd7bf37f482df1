"""Arrays out of NPZ files that nobody vouches for: plain numbers, of a size that was checked before it was believed."""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
MOST_BYTES = 256 << 20  # of one array
MOST_HEADER_BYTES = 4096
NUMBERS = "buif"  # booleans, integers, floats


class Unreadable(ValueError):
    """A file that is not what it should be; the message is fit for the page."""


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """One NPZ file, of which one array at a time is read."""

    path: Path

    def names(self) -> frozenset[str]:
        try:
            with zipfile.ZipFile(self.path) as file:
                return frozenset(name.removesuffix(".npy") for name in file.namelist())
        except Exception as error:  # a damaged or hostile file may fail anywhere in the reader
            raise Unreadable(f"{self.path.name} cannot be read") from error

    def read(self, name: str, shape: tuple[int | None, ...], kinds: str = NUMBERS) -> Array:
        """The array of that name; ``shape`` says how long each axis has to be, None: any length."""
        try:
            found = self._read(name)
        except Exception as error:  # as above
            raise Unreadable(f"{self.path.name}: {name} cannot be read") from error
        fits = found.ndim == len(shape) and all(
            wanted in (None, given) for wanted, given in zip(shape, found.shape, strict=True)
        )
        if not fits or found.dtype.kind not in kinds:
            raise Unreadable(f"{self.path.name}: {name} is {found.dtype} {found.shape}, which does not fit")
        return found

    def _read(self, name: str) -> Array:
        with zipfile.ZipFile(self.path) as file, file.open(f"{name}.npy") as member:
            data = member.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError("too large")
        stream = io.BytesIO(data)
        header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, by_columns, dtype = header[np.lib.format.read_magic(stream)](stream, max_header_size=MOST_HEADER_BYTES)
        # an array of objects would be pickled; a header may also promise more than there is
        if dtype.hasobject or math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
            raise ValueError("the header does not fit the data")
        flat = np.frombuffer(data, dtype, offset=stream.tell())
        return flat.reshape(shape, order="F" if by_columns else "C")
