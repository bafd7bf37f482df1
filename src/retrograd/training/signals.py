"""Stopping on request: the first Ctrl-C or SIGTERM ends the run after its current step, with a checkpoint."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from retrograd.training.run import Run


@contextmanager
def stopping_on_signals(run: Run) -> Iterator[list[signal.Signals]]:
    """While active, SIGINT and SIGTERM ask the run to stop; a second one stops at once. Gives what was received."""
    received: list[signal.Signals] = []

    def ask(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        if len(received) > 1:
            raise KeyboardInterrupt
        run.stop_requested = True
        print(f"retrograd: {received[0].name}: saving a checkpoint, then stopping", file=sys.stderr)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
