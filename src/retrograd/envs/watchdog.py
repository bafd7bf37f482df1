"""A watch over native calls that may never come back.

An emulator thread that throws leaves its caller waiting for ever, deaf even to Ctrl-C. A process
that ends with a stack dump can be restarted; one that hangs cannot.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from dataclasses import dataclass

EXIT_CODE = 70


@dataclass(frozen=True, slots=True)
class Patience:
    """How long environments may be silent, and how often their workers may fail."""

    watchdog_seconds: float | None = 60.0  # native emulators: the process ends; None waits for ever
    worker_timeout_seconds: float = 60.0  # a worker: it is started anew
    worker_restarts_per_hour: int = 10  # of all workers together; one more ends the run


class Watchdog:
    """One daemon thread that looks four times per period; a guarded call costs two assignments.

    Used as a context manager round the call. ``seconds=None`` switches it off. It counts its own looks at
    one and the same call, not the clock: a process stopped by Ctrl-Z for an hour has not been waiting.
    """

    def __init__(self, what: str, seconds: float | None) -> None:
        self._what = what
        self._seconds = seconds
        self._calls = 0
        self._inside = False
        self._stop = threading.Event()
        if seconds is not None:
            threading.Thread(target=self._watch, args=(seconds,), name="retrograd-watchdog", daemon=True).start()

    def __enter__(self) -> None:
        self._calls += 1
        self._inside = True

    def __exit__(self, *_: object) -> None:
        self._inside = False

    def close(self) -> None:
        self._stop.set()

    def _watch(self, seconds: float) -> None:
        looks, last_call = 0, 0
        while not self._stop.wait(seconds / 4):
            looks = looks + 1 if self._inside and self._calls == last_call else 0
            last_call = self._calls
            if looks >= 4:
                self._give_up(seconds)

    def _give_up(self, seconds: float) -> None:
        # sys.__stderr__: a replaced stderr may have no file descriptor, which the dump needs
        stream = sys.__stderr__
        if stream is not None:
            print(
                f"retrograd: {self._what} did not answer within {seconds:g} s (hardware.watchdog_seconds); giving up. "
                "The run goes on from its last checkpoint: retrograd resume <run folder>",
                file=stream,
                flush=True,
            )
            faulthandler.dump_traceback(file=stream, all_threads=True)
            stream.flush()
        os._exit(EXIT_CODE)
