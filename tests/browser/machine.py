"""How much of the machine was free while something was timed: seconds are promised for two idle cores."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROMISED_CORES = 2.0  # one for the browser, one for the server
LEAST_CORES = 0.5  # with less, pages that draw themselves anew never come to rest, and times say nothing


@dataclass(frozen=True)
class Timing:
    """``free_cores`` is what other programs left of the cores we may use."""

    seconds: float
    free_cores: float

    @property
    def says_something(self) -> bool:
        return self.free_cores >= LEAST_CORES

    def limit(self, promised_seconds: float) -> float:
        """The promise where there were two cores, more in proportion where there was less."""
        return promised_seconds * max(1.0, PROMISED_CORES / max(self.free_cores, 1e-3))

    def __str__(self) -> str:
        return f"{self.seconds:.2f} s with {self.free_cores:.1f} cores free"


def measure(action: Callable[[], Any]) -> Timing:
    """Do it, and say how long it took; where the system keeps no account of its cores, all of them count as free."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    others, begin = _seconds_of_others(cores), time.perf_counter()
    action()
    seconds = time.perf_counter() - begin
    taken = max(0.0, _seconds_of_others(cores) - others)
    return Timing(seconds, max(0.0, len(cores) - taken / seconds))


def _seconds_of_others(cores: list[int]) -> float:
    """Processor time on these cores so far that was not spent by this process and what it started."""
    tick = os.sysconf("SC_CLK_TCK")
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
    except OSError:
        return 0.0
    busy = 0
    for name, *ticks in lines:
        if name in {f"cpu{core}" for core in cores}:
            idle, waiting = int(ticks[3]), int(ticks[4])
            busy += sum(int(value) for value in ticks[:8]) - idle - waiting
    return (busy - sum(_ticks(process) for process in _descendants(os.getpid()))) / tick


def _descendants(process: int) -> list[int]:
    found = [process]
    for one in found:  # grows as it goes
        for listed in Path(f"/proc/{one}/task").glob("*/children"):
            try:
                found += [int(child) for child in listed.read_text().split()]
            except OSError:
                continue
    return found


def _ticks(process: int) -> int:
    """Of the process and of those of its children that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(int(fields[place]) for place in (11, 12, 13, 14))
