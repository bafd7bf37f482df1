"""Schedules: step → value, stateless, so that resuming one needs only the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol


class Schedule(Protocol):
    def __call__(self, step: int) -> float: ...


@dataclass(frozen=True, slots=True)
class Constant:
    value: float

    def __call__(self, step: int) -> float:
        return self.value


@dataclass(frozen=True, slots=True)
class Linear:
    """``start`` until ``begin_steps``, then a straight line to ``end`` over ``decay_steps``."""

    start: float
    end: float
    decay_steps: int
    begin_steps: int = 0

    def __call__(self, step: int) -> float:
        if self.decay_steps <= 0:
            return self.end if step >= self.begin_steps else self.start
        fraction = min(max((step - self.begin_steps) / self.decay_steps, 0.0), 1.0)
        return self.start + fraction * (self.end - self.start)


@dataclass(slots=True)
class Horizon:
    """How many steps the run is planned to take; grows when its budget does."""

    steps: int


@dataclass(frozen=True, slots=True)
class WholeRun:
    """``start`` for the share ``held`` of the run as it is planned now, then a straight line to ``end`` at its end.

    ``geometric``: the same factor in the same time instead, so that most of the fall comes first.
    """

    start: float
    end: float
    horizon: Horizon
    held: float = 0.0
    geometric: bool = False

    def __call__(self, step: int) -> float:
        begin = round(self.held * self.horizon.steps)
        rest = self.horizon.steps - begin
        if not self.geometric:
            return Linear(self.start, self.end, rest, begin)(step)
        return self.start * math.exp(Linear(0.0, math.log(self.end / self.start), rest, begin)(step))


@dataclass(frozen=True, slots=True)
class WarmUp:
    """``value`` for the first ``warmup_steps``, then what ``after`` says."""

    value: float
    warmup_steps: int
    after: Schedule

    def __call__(self, step: int) -> float:
        return self.value if step < self.warmup_steps else self.after(step)
