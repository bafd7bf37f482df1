"""Signals: the first Ctrl-C or SIGTERM ends the run after its current step, with a checkpoint; SIGUSR1 only saves."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from retrograd.training.run import Run


@contextmanager
def stopping_on_signals(run: Run) -> Iterator[list[signal.Signals]]:
    """While active, SIGINT and SIGTERM ask the run to stop, SIGUSR1 to save and go on. Gives what asked it to stop.

    The handlers only set flags, which the trainer looks at between two steps; a second request stops at once.
    """
    received: list[signal.Signals] = []

    def ask(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        if len(received) > 1:
            raise KeyboardInterrupt
        run.stop_requested, run.stop_reason = True, received[0].name

    def save(number: int, frame: FrameType | None) -> None:
        run.save_requested = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    if hasattr(signal, "SIGUSR1"):  # not on Windows
        before[signal.SIGUSR1] = signal.signal(signal.SIGUSR1, save)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
