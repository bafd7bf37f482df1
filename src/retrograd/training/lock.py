"""One process at a time in a run folder. The lock is the system's: it goes with the process that holds it."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import IO, Any

from retrograd.core.errors import InUseError

try:
    import fcntl
except ImportError:  # not on Windows, where an open file is protected by the system
    fcntl = None  # type: ignore[assignment]


class RunLock:
    """Held from its making until ``release``; refused while another process holds it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: IO[str] | None = None
        self.acquire()

    def acquire(self) -> None:
        """Take it, if it is not held here already."""
        if self._file is not None:
            return
        file = open(self.folder / ".lock", "a+", encoding="utf-8")  # noqa: SIM115 - held open on purpose
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _read_holder(file)
            file.close()
            raise InUseError(
                f"the run folder {self.folder} is in use by {holder}; wait for it, or stop it first"
            ) from error
        file.seek(0)
        file.truncate()
        json.dump({"pid": os.getpid(), "host": platform.node()}, file)
        file.flush()
        self._file = file

    def release(self) -> None:
        """Free it; the file stays, as removing it could take away another one's lock."""
        if self._file is not None:
            self._file.truncate(0)  # the name of this machine is nobody's business once the run is shared
            self._file.close()
            self._file = None


def _read_holder(file: IO[str]) -> str:
    try:
        file.seek(0)
        holder: Any = json.load(file)
        return f"process {int(holder['pid'])} on {holder['host']}"
    except (ValueError, KeyError, TypeError, OSError):
        return "another process"
