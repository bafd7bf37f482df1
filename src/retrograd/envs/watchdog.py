"""A watch over native calls that may never come back.

An emulator thread that throws leaves its caller waiting for ever, deaf even to Ctrl-C. A process
that ends with a stack dump can be restarted; one that hangs cannot.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading

EXIT_CODE = 70


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
            print(f"retrograd: {self._what} did not answer within {seconds:g} s; giving up", file=stream, flush=True)
            faulthandler.dump_traceback(file=stream, all_threads=True)
            stream.flush()
        os._exit(EXIT_CODE)
