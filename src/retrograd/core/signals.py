"""Signals that go to a whole group of processes, where the first one decides what becomes of all.

Ctrl-C is sent so by a terminal, SIGTERM and SIGUSR1 by a cluster.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

TO_THE_GROUP = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)
)  # Windows lacks the last one


@contextmanager
def signals_held() -> Iterator[None]:
    """Round the start of processes: they inherit it, so that none is lost before it can ignore signals."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, TO_THE_GROUP)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_signals_to_first_process() -> None:
    """In a process that works for another one."""
    for number in TO_THE_GROUP:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, TO_THE_GROUP)  # or programs that it starts would inherit it, too
