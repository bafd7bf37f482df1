"""Where the time goes: one running clock, whose laps are put down to the phases of a step."""

from __future__ import annotations

import time
from collections.abc import Callable

PHASES = ("emulate", "act", "sample", "update")
REST = "rest"  # logging, evaluation, saving: measured so that it is nobody else's


class PhaseTimer:
    """``lap(phase)`` puts the time since the lap before down to ``phase``.

    It reads the host's clock and never waits for a device: on CUDA, work that was only started counts where
    somebody waits for it. ``emulate`` is the time spent waiting, since the emulators also run while the learner works.
    """

    __slots__ = ("_clock", "_last", "_seconds")

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._last = clock()
        self._seconds: dict[str, float] = {}

    def lap(self, phase: str) -> None:
        now = self._clock()
        self._seconds[phase] = self._seconds.get(phase, 0.0) + now - self._last
        self._last = now

    def take(self) -> dict[str, float]:
        """``{"emulate_seconds": …}`` since the last call, for the phases that had a lap; begins again."""
        seconds, self._seconds = self._seconds, {}
        return {f"{phase}_seconds": seconds[phase] for phase in PHASES if phase in seconds}
