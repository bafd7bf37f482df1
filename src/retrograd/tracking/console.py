"""Progress for human eyes, on standard error: bars in a terminal, now and then a line elsewhere."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

BAR_SECONDS = 0.2
LINE_SECONDS = 30.0
SMOOTHING = 0.3  # weight of the newest interval in the shown speed

log = logging.getLogger(__name__)


class ProgressSink(Protocol):
    """A sink that also wants to know how far the run is."""

    def write(self, table: str, row: Mapping[str, Any]) -> None: ...
    def advance(self, step: int) -> None: ...
    def close(self) -> None: ...


class NullConsole:
    """Says nothing."""

    def write(self, table: str, row: Mapping[str, Any]) -> None:
        pass

    def advance(self, step: int) -> None:
        pass

    def close(self) -> None:
        pass


class ConsoleSink:
    """A prefill bar up to ``prefill_until_step``, then a training bar up to ``total_steps``.

    ``advance`` may be called at every step: it looks at the clock and mostly returns.
    """

    def __init__(
        self,
        total_steps: int,
        *,
        prefill_until_step: int = 0,
        start_step: int = 0,
        stream: TextIO | None = None,
        interactive: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        stream = sys.stderr if stream is None else stream
        bars = stream.isatty() if interactive is None else interactive
        self._total_steps = total_steps
        self._prefill_until_step = prefill_until_step
        self._display: _Bars | _Lines = _Bars(stream) if bars else _Lines(stream)
        self._period_seconds = BAR_SECONDS if bars else LINE_SECONDS
        self._clock = clock
        # of the first step on: what a run does before it, restoring long games say, is no measure of its speed
        self._shown_seconds: float | None = None
        self._due_seconds = clock()
        self._shown_step = self._last_step = start_step
        self._speed: float | None = None
        self._figures: dict[str, float] = {}
        self._closed = False

    def advance(self, step: int) -> None:
        self._last_step = step
        now = self._clock()
        if now >= self._due_seconds:
            self._due_seconds = now + self._period_seconds
            try:
                self._show(step, now)
            except Exception:  # a closed terminal must not end the training
                self._due_seconds = math.inf
                self._closed = True
                log.exception("the progress display failed and is switched off; the training goes on")

    def write(self, table: str, row: Mapping[str, Any]) -> None:
        if table == "train":
            self._figures["return"] = row["episode_return"]
        elif table == "update":
            names = {"loss": "loss", "epsilon": "ε"}
            self._figures |= {label: row[name] for name, label in names.items() if row.get(name) is not None}
        elif table == "eval":
            self._display.say(
                f"{row['eval_type']} evaluation at step {row['step']:,}: mean return {row['eval_mean_return']:.6g} "
                f"± {row['eval_std_return']:.4g} ({row['eval_min_return']:.6g} to {row['eval_max_return']:.6g})"
            )

    def close(self) -> None:
        """Show the end; closing again, as sink and as progress, changes nothing."""
        if not self._closed:
            self._closed = True
            self._due_seconds = math.inf
            self._show(self._last_step, self._clock())
            self._display.close()

    def _show(self, step: int, now: float) -> None:
        if self._shown_seconds is None:
            self._shown_seconds, self._shown_step = now, step
        elif now > self._shown_seconds and step > self._shown_step:
            speed = (step - self._shown_step) / (now - self._shown_seconds)
            self._speed = speed if self._speed is None else self._speed + SMOOTHING * (speed - self._speed)
            self._shown_seconds, self._shown_step = now, step
        if step < self._prefill_until_step:
            self._display.show("prefill", step, self._prefill_until_step, self._text(step, self._prefill_until_step))
        else:
            self._display.show("train", step, self._total_steps, self._text(step, self._total_steps))

    def _text(self, step: int, goal: int) -> str:
        words = [f"{label} {value:.4g}" for label, value in self._figures.items()]
        if self._speed:
            words += [f"{self._speed:,.0f} steps/s", f"{format_duration(max(goal - step, 0) / self._speed)} left"]
        return "  ".join(words)


def format_duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


class _Bars:
    """One bar per phase; refreshed by hand, so that no thread competes with the training."""

    def __init__(self, stream: TextIO) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[figures]}", markup=False),
            console=Console(file=stream),
            auto_refresh=False,
            redirect_stdout=False,  # standard output carries results, which must stay there
        )
        self._tasks: dict[str, TaskID] = {}

    def show(self, phase: str, step: int, goal: int, figures: str) -> None:
        if not self._tasks:
            self._progress.start()
        if phase not in self._tasks:
            for task in self._tasks.values():  # the phase before ended between two looks
                self._progress.update(task, completed=self._progress.tasks[task].total)
            self._tasks[phase] = self._progress.add_task(phase, total=goal, figures=figures)
        self._progress.update(self._tasks[phase], completed=step, figures=figures)
        self._progress.refresh()

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


class _Lines:
    """For log files: plain lines, nothing that moves."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, phase: str, step: int, goal: int, figures: str) -> None:
        self.say(f"{phase} {step:,}/{goal:,} ({100 * step / max(goal, 1):.1f} %)  {figures}".rstrip())

    def say(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        pass
