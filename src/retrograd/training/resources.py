"""What a run does when the machine runs short: of disk while saving, of memory while training.

Neither may cost more than has to be: a save that fails is tried again later, and a run that is about to be killed for
its memory saves and leaves by itself.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from retrograd.core.errors import ResourceError

FAILED_SAVES_ALLOWED = 3
LOOK_EVERY_SECONDS = 1.0
CGROUP = Path("/sys/fs/cgroup")

log = logging.getLogger(__name__)


class SaveGuard:
    """Counts saves that failed in a row: training goes on after the first ones and ends after ``allowed``."""

    def __init__(self, allowed: int = FAILED_SAVES_ALLOWED) -> None:
        self._allowed = allowed
        self._failed = 0

    def succeeded(self) -> None:
        if self._failed:
            log.warning("checkpoints can be saved again, after %d failed", self._failed)
        self._failed = 0

    def failed(self, error: Exception, step: int) -> None:
        """One loud error for a row of failures; raises after the last one allowed."""
        self._failed += 1
        if self._failed >= self._allowed:
            raise ResourceError(
                f"{self._failed} checkpoints in a row could not be saved, the last at step {step}: {describe(error)}; "
                "the last good checkpoint is untouched"
            ) from error
        if self._failed == 1:
            log.error(
                "the checkpoint of step %d could not be saved: %s; the training goes on and tries again when the next "
                "one is due, %d failures in a row end it",
                step,
                describe(error),
                self._allowed,
            )


def describe(error: Exception) -> str:
    """``No space left on device: …/agent.pt`` for errors of the system, the text of others."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return str(error) or type(error).__name__


class MemoryWatch:
    """Looks once a second whether more than ``fraction`` of the memory is in use; None never looks."""

    def __init__(
        self,
        fraction: float | None,
        *,
        read: Callable[[], tuple[int, int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fraction = fraction
        self._read = read if read is not None else memory_left
        self._clock = clock
        self._next_look = clock()

    def problem(self) -> str | None:
        """Why the run should save and leave, or None."""
        now = self._clock()
        if self._fraction is None or now < self._next_look:
            return None
        self._next_look = now + LOOK_EVERY_SECONDS
        left, total = self._read()
        if total - left <= self._fraction * total:
            return None
        return (
            f"{(total - left) / 1e9:.2f} of {total / 1e9:.2f} GB memory are in use, more than "
            f"hardware.memory_watch_fraction={self._fraction:g} allows: stopped before the machine kills the run"
        )


def memory_left() -> tuple[int, int]:
    """Bytes that can still be had, and bytes in all: of the machine, or of the container if that has less."""
    memory = psutil.virtual_memory()
    left, total = int(memory.available), int(memory.total)
    limited = _container_memory()
    return min((left, total), limited) if limited is not None else (left, total)


def _container_memory(folder: Path = CGROUP) -> tuple[int, int] | None:
    """The same for a control group with a limit; None without one."""
    try:
        limit = (folder / "memory.max").read_text().strip()
        used = int((folder / "memory.current").read_text())
        # files that are only cached go when memory is asked for
        cached = int(dict(map(str.split, (folder / "memory.stat").read_text().splitlines())).get("inactive_file", "0"))
        return (int(limit) - used + cached, int(limit)) if limit != "max" else None
    except (OSError, ValueError):
        return None
