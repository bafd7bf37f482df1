"""One process at a time in a run folder. The lock is the system's: it goes with the process that holds it."""

from __future__ import annotations

import json
import os
import platform
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from retrograd.core.errors import InUseError, UsageError

try:
    import fcntl
except ImportError:  # not on Windows, where an open file is protected by the system
    fcntl = None  # type: ignore[assignment]


NAMING_SECONDS = 1.0  # how long a new holder may take to write its name


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
        try:
            file = open(self.folder / ".lock", "a+", encoding="utf-8")  # noqa: SIM115 - held open on purpose
        except OSError as error:
            raise self._refused(error) from error
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _read_holder(file)
            file.close()
            raise InUseError(
                f"the run folder {self.folder} is in use by {holder}; wait for it, or stop it first"
            ) from error
        try:
            file.seek(0)
            file.truncate()
            json.dump({"pid": os.getpid(), "host": platform.node()}, file)
            file.flush()
        except OSError as error:
            with suppress(OSError):
                file.close()
            raise self._refused(error) from error
        self._file = file

    def _refused(self, error: OSError) -> UsageError:
        return UsageError(f"the run folder {self.folder} cannot be locked: {error.strerror or error}")

    def release(self) -> None:
        """Free it; the file stays, as removing it could take away another one's lock."""
        if self._file is not None:
            self._file.truncate(0)  # the name of this machine is nobody's business once the run is shared
            self._file.close()
            self._file = None


def _read_holder(file: IO[str]) -> str:
    """Who holds it. One that was killed left its name behind; the holder of now may be about to write its own."""
    until = time.monotonic() + NAMING_SECONDS
    while True:
        try:
            file.seek(0)
            holder: Any = json.load(file)
            pid, host = int(holder["pid"]), holder["host"]
            if host != platform.node() or _is_alive(pid):
                return f"process {pid} on {host}"
        except (ValueError, KeyError, TypeError, OSError):
            pass  # half written, or not yet
        if time.monotonic() > until:
            return "another process"
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # asks, and sends nothing
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True
