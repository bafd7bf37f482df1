"""Live progress over all runs of a sweep: bars on a terminal, plain lines in a log file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from retrograd.experiments.ledger import State
from retrograd.tracking.console import format_duration

LINE_SECONDS = 30.0
NEWS = (State.FINISHED, State.FAILED, State.PRUNED)


@dataclass(frozen=True)
class RunProgress:
    name: str
    newest: Mapping[str, Any]  # step, env_frames, return; empty before its first log row
    total_frames: int

    @property
    def fraction(self) -> float:
        return min(1.0, (self.newest.get("env_frames") or 0) / self.total_frames)

    @property
    def figures(self) -> str:
        score = self.newest.get("return")
        return "" if score is None else f"return {score:.4g}"


class SweepProgress(Protocol):
    def say(self, text: str) -> None: ...
    def show(self, states: Mapping[State, int], total: int, running: Sequence[RunProgress]) -> None: ...
    def close(self, seconds: float) -> None: ...


class NullProgress:
    """Says nothing."""

    def say(self, text: str) -> None:
        pass

    def show(self, states: Mapping[State, int], total: int, running: Sequence[RunProgress]) -> None:
        pass

    def close(self, seconds: float) -> None:
        pass


class SweepConsole:
    """One bar for the sweep and one for each run under way, or a line every half minute."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        interactive: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        bars = self._stream.isatty() if interactive is None else interactive
        self._bars = _Bars(self._stream) if bars else None
        self._clock, self._begun = clock, clock()
        self._line_at = self._begun + LINE_SECONDS

    def say(self, text: str) -> None:
        if self._bars is not None:
            self._bars.say(text)
        else:
            print(text, file=self._stream, flush=True)

    def show(self, states: Mapping[State, int], total: int, running: Sequence[RunProgress]) -> None:
        ended = sum(states.get(state, 0) for state in NEWS)
        progress = ended + sum(run.fraction for run in running)
        text = self._text(states, total, progress)
        if self._bars is not None:
            self._bars.show(text, total, progress, running)
        elif self._clock() >= self._line_at:
            self._line_at = self._clock() + LINE_SECONDS
            runs = "; ".join(f"{run.name} {100 * run.fraction:.0f} % {run.figures}".rstrip() for run in running)
            self.say(f"sweep {text}" + (f" | {runs}" if runs else ""))

    def close(self, seconds: float) -> None:
        if self._bars is not None:
            self._bars.close()
        self.say(f"sweep ended after {format_duration(seconds)}")

    def _text(self, states: Mapping[State, int], total: int, progress: float) -> str:
        words = [f"{states.get(State.FINISHED, 0)} of {total} runs finished"]
        others = (State.PAUSED, State.FAILED, State.PRUNED)
        words += [f"{states[state]} {state}" for state in others if states.get(state)]
        return ", ".join(words)


class _Bars:
    """Drawn when asked, without a thread: the sweep forks, and threads and forks do not mix."""

    def __init__(self, stream: TextIO) -> None:
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[figures]}", markup=False),
            console=Console(file=stream),
            auto_refresh=False,
            redirect_stdout=False,
        )
        self._tasks: dict[str, TaskID] = {}

    def show(self, text: str, total: int, progress: float, running: Sequence[RunProgress]) -> None:
        if not self._tasks:
            self._progress.start()
            self._tasks[""] = self._progress.add_task("sweep", total=total, figures=text)
        self._progress.update(self._tasks[""], completed=progress, figures=text)
        names = {run.name for run in running}
        for gone in [name for name in self._tasks if name and name not in names]:
            self._progress.remove_task(self._tasks.pop(gone))
        for run in running:
            if run.name not in self._tasks:
                self._tasks[run.name] = self._progress.add_task(f"  {run.name}", total=1.0, figures="")
            self._progress.update(self._tasks[run.name], completed=run.fraction, figures=run.figures)
        self._progress.refresh()

    def say(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()
