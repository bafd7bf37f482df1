"""Where a command writes: whether it can is asked before the work, which may take minutes."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from tempfile import TemporaryFile
from typing import Literal

from retrograd.core.errors import UsageError


def check_target(path: str | Path, kind: Literal["file", "folder"]) -> Path:
    """Refuse what could not be written in the end: of the other kind, below a file, too long a name, no permission."""
    target, place = Path(path), Path(path).absolute()
    if str(path).startswith("~"):
        raise UsageError(f"{path}: the shell has left ~ as it stands, and so would we; write $HOME or the whole path")
    entry = _entry(target, place)
    if entry is not None and stat.S_ISDIR(entry.st_mode) != (kind == "folder"):
        raise UsageError(f"{target} is a {'file' if kind == 'folder' else 'folder'}; a {kind} is to be written there")
    if entry is None or kind == "file":
        place = place.parent
    while (entry := _entry(target, place)) is None:
        place = place.parent
    if not stat.S_ISDIR(entry.st_mode):
        raise UsageError(f"{target} cannot be made: {place} is a file, not a folder")
    for name in target.absolute().relative_to(place).parts:  # the system itself says so only once its parents are there
        if len(os.fsencode(name)) > os.pathconf(place, "PC_NAME_MAX"):
            raise UsageError(f"{target} cannot be made: File name too long")
    try:
        with TemporaryFile(dir=place):  # permissions alone do not tell of a read-only or strange file system
            pass
    except OSError as error:
        raise UsageError(f"{target} cannot be made: nothing can be written to {place}: {error.strerror}") from error
    return target


def _entry(target: Path, place: Path) -> os.stat_result | None:
    try:
        return os.stat(place)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:  # a name that is too long, holds a NUL, or leads in a circle
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{target} cannot be made: {reason}") from error
