"""Runs as processes of their own: started with a share of the cores, never left behind, ended politely or at once."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from retrograd.training.lock import RunLock

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
GRACE_SECONDS = 60.0
CLOCK_SECONDS = 0.05  # how exactly the beginning of a process is known
_PR_SET_PDEATHSIG = 1


@dataclass
class Child:
    """A running process in a session of its own, so that it can be ended with all it started."""

    process: subprocess.Popen[bytes]
    log: Path
    asked_to_stop_at: float | None = field(default=None)

    @property
    def identity(self) -> tuple[int, float]:
        """The process's id and when it began."""
        try:
            return self.process.pid, psutil.Process(self.process.pid).create_time()
        except psutil.Error:  # it has ended already
            return self.process.pid, 0.0

    def poll(self) -> int | None:
        """The exit code once it has ended; one that was asked and does not stop is killed."""
        code = self.process.poll()
        overdue = self.asked_to_stop_at is not None and time.monotonic() - self.asked_to_stop_at > GRACE_SECONDS
        if code is None and overdue:
            self.kill()
        return code

    def ask_to_stop(self) -> None:
        """Let it save a checkpoint and end."""
        if self.asked_to_stop_at is None:
            self.asked_to_stop_at = time.monotonic()
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def start_child(command: Sequence[str], *, threads: int, log: Path) -> Child:
    """Start a command that dies with us; what it prints goes to ``log``, behind what is there."""
    environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            preexec_fn=_die_with_parent(),
        )
    return Child(process, log)


def _die_with_parent() -> Callable[[], None] | None:
    """On Linux the kernel ends a child whose parent was killed; elsewhere ``end_leftover`` does, later."""
    if not sys.platform.startswith("linux"):
        return None
    prctl, parent = ctypes.CDLL(None, use_errno=True).prctl, os.getpid()

    def prepare() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was killed before the kernel was told
            os._exit(137)

    return prepare


def end_leftover(process: Sequence[float]) -> bool:
    """Kill a run that outlived its sweep, by the id and the beginning that were noted when it started."""
    number, begun = int(process[0]), process[1]
    try:
        found = psutil.Process(number)
        if abs(found.create_time() - begun) > CLOCK_SECONDS:
            return False  # the id is another process's by now
        os.killpg(number, signal.SIGKILL)  # it leads a session of its own
        found.wait(GRACE_SECONDS)
    except (psutil.Error, OSError):
        return False
    return True


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """One sweep at a time in a folder; the lock of a killed one frees itself."""
    lock = RunLock(folder)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def stop_requests() -> Iterator[list[signal.Signals]]:
    """While active, Ctrl-C and SIGTERM are noted here instead of ending the process; the second one raises."""
    received: list[signal.Signals] = []

    def note(number: int, frame: object) -> None:
        received.append(signal.Signals(number))
        if len(received) > 1:
            raise KeyboardInterrupt

    try:
        before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: signals are its business
        before = {}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
