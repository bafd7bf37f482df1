"""The cores and the memory a sweep may use, and what each run needs of them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from retrograd.core.errors import UsageError

MEMORY_FRACTION = 0.9  # of what is free when the sweep begins
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


@dataclass(frozen=True)
class Inspection:
    """What is known of a run before it starts: its resolved config and its memory at the peak."""

    config: Mapping[str, Any]
    memory_bytes: int

    @property
    def total_frames(self) -> int:
        return int(self.config["training"]["total_env_frames"])

    @property
    def processes(self) -> int:
        """How many processes compute at the same time: asynchronous agents bring their own."""
        return int(self.config["agent"].get("workers") or 1)

    @property
    def threads(self) -> int | None:
        """Threads the user asked for, of torch or of the emulators, whichever is more."""
        hardware = self.config["hardware"]
        given = [hardware[key] for key in ("torch_threads", "env_threads") if hardware.get(key) is not None]
        return max(given) if given else None


Inspector = Callable[[Sequence[str]], Inspection]


@dataclass(frozen=True)
class Need:
    cores: int
    memory_bytes: int


@dataclass(frozen=True)
class Budget:
    """``jobs`` runs at once at most, each with ``threads``, never more than the cores and the memory allow."""

    cores: int
    memory_bytes: int
    jobs: int

    @property
    def threads(self) -> int:
        return max(1, self.cores // self.jobs)

    def need(self, run: Inspection) -> Need:
        """What one run takes; one that wants more cores than there are has them all to itself."""
        return Need(min(self.cores, (run.threads or self.threads) * run.processes), run.memory_bytes)

    def fits(self, need: Need, running: Iterable[Need]) -> bool:
        taken = list(running)
        return (
            len(taken) < self.jobs
            and need.cores + sum(each.cores for each in taken) <= self.cores
            and need.memory_bytes + sum(each.memory_bytes for each in taken) <= self.memory_bytes
        )

    def check(self, name: str, run: Inspection) -> None:
        """Refuse a run that could never start."""
        if run.threads is not None and run.threads > self.cores:
            raise UsageError(
                f"run {name} wants {run.threads} threads and the sweep has {self.cores} cores: lower "
                "hardware.torch_threads and hardware.env_threads, or raise --cores"
            )
        if run.memory_bytes > self.memory_bytes:
            raise UsageError(
                f"run {name} needs {run.memory_bytes / 1e9:.1f} GB and the sweep may use "
                f"{self.memory_bytes / 1e9:.1f} GB: lower replay.capacity or training.num_envs, or raise --memory"
            )


def make_budget(cores: int | None = None, memory_bytes: int | None = None, jobs: int | None = None) -> Budget:
    """What is left out is taken from the machine: all cores, most of the free memory, a run a core."""
    for name, value in (("cores", cores), ("jobs", jobs), ("memory", memory_bytes)):
        if value is not None and value < 1:
            raise UsageError(f"{name}={value} must be at least 1")
    cores = cores or count_cores()
    if jobs is not None and jobs > cores:
        raise UsageError(f"jobs={jobs} must not exceed cores={cores}: runs that share a core starve each other")
    available = int(psutil.virtual_memory().available * MEMORY_FRACTION)
    return Budget(cores, memory_bytes or available, jobs or cores)


def count_cores() -> int:
    """The cores this process may use, which a container or a scheduler may have limited."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse_memory(text: str) -> int:
    """``8GB``, ``1.5G``, ``800MB`` or bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", text.strip().lower())
    if match is None or not float(match[1]):
        raise UsageError(f"memory={text!r} must be a size such as 8GB, 1.5GB or 800MB")
    return int(float(match[1]) * _UNITS[match[2]])
