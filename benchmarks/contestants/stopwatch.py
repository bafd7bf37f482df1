"""What every contestant does alike: a clock that starts when the run is in its stride, and one line of JSON."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Stopwatch:
    """Tell it the step count now and then; it measures from ``warmup`` steps on, for ``steps`` steps or more."""

    warmup: int
    steps: int
    begun: tuple[int, float] | None = None
    ended: tuple[int, float] | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    overrides: list[str] = field(default_factory=list)  # of our own config

    def tell(self, step: int) -> bool:
        """False once enough has been measured."""
        now = time.monotonic()
        if self.begun is None:
            if step >= self.warmup:
                self.begun = (step, now)
        elif self.ended is None and step >= self.begun[0] + self.steps:
            self.ended = (step, now)
        return self.ended is None

    def report(self) -> None:
        """Print the figures; memory is the peak of this process and of the children that have ended."""
        if self.begun is None or self.ended is None:
            sys.exit("the run ended before enough was measured")
        (first, begin), (last, end) = self.begun, self.ended
        peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        figures = {"steps_per_second": (last - first) / (end - begin), "peak_gb": peak / 1e6, **self.notes}
        print(json.dumps(figures))


def arguments(algorithms: list[str], *, overridable: bool = False) -> tuple[str, Stopwatch]:
    parser = argparse.ArgumentParser()
    parser.add_argument("algorithm", choices=algorithms)
    parser.add_argument("--warmup", type=int, required=True, help="steps before the clock starts")
    parser.add_argument("--steps", type=int, required=True, help="steps that are measured")
    if overridable:
        parser.add_argument("--set", nargs="*", dest="overrides", default=[], metavar="key=value", help="of the config")
    options = parser.parse_args()
    return options.algorithm, Stopwatch(options.warmup, options.steps, overrides=getattr(options, "overrides", []))
