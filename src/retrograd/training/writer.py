"""Disk work beside the training: one job at a time, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)


class Writer:
    """At most one job is under way; its error is raised by whoever asks next."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._result: Path | None = None
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._abandoned = False

    @property
    def busy(self) -> bool:
        """Whether a job is at work on the disk."""
        return self._thread is not None and not self._ended.is_set()

    @property
    def failed(self) -> bool:
        """Whether a finished job has an error that nobody has seen yet."""
        return self._error is not None

    def submit(self, job: Callable[[], Path]) -> None:
        """Begin a job; the one before must have been waited for."""
        if self._thread is not None:
            raise RuntimeError("a job is still under way: wait for it first")
        self._result = None
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, args=(job,), name="retrograd-writer", daemon=True)
        self._thread.start()

    def wait(self) -> Path | None:
        """The result of the job under way, or of the last one; raises its error, once."""
        if self._abandoned:
            return None
        if self._thread is not None:
            self._ended.wait()  # a signal may interrupt it, after which a thread that is joined can pass for ended
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._result

    def abandon(self) -> None:
        """Wait for nothing any more: what is under way goes on until the process ends."""
        self._abandoned = True

    def close(self) -> None:
        """Wait for the end; an error that nobody asked for is at least logged."""
        try:
            self.wait()
        except Exception:
            log.exception("the last checkpoint could not be written")

    def _run(self, job: Callable[[], Path]) -> None:
        try:
            self._result = job()
        except BaseException as error:  # handed to the thread that asks
            self._error = error
        finally:
            self._ended.set()
