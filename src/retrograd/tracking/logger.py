"""Passing rows on to every sink; the run's only way to log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from retrograd.core.protocols import Sink
from retrograd.core.types import Episode
from retrograd.tracking.metrics import MetricsTracker

FAILURES_ALLOWED = 3

log = logging.getLogger(__name__)


class Logger:
    """Makes the rows of the three tables and gives each to all sinks.

    No log is worth a training: a sink that fails is reported once, and left out after a few failures in a row. One
    that calls itself ``essential`` is never left out; it has to keep what it could not write.
    """

    def __init__(self, sinks: Iterable[Sink], tracker: MetricsTracker | None = None) -> None:
        self.tracker = tracker if tracker is not None else MetricsTracker()
        self._sinks = list(sinks)
        self._failures: dict[int, int] = {}  # in a row, by the sink's id

    def add(self, sink: Sink) -> None:
        """One more place for the rows from now on."""
        self._sinks.append(sink)

    def log_episode(self, episode: Episode, *, step: int, env_frames: int) -> None:
        """A game ended: one row of the train table."""
        self.tracker.update(episodes=(episode,))
        row = {
            "step": step,
            "env_frames": env_frames,
            "episode_number": self.tracker.episodes,
            "episode_return": episode.score,
            "episode_length": episode.length_steps,
        }
        self._write("train", row)

    def log_step(self, *, step: int, env_frames: int, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One row of the update table, with the means since the last one; returns it."""
        episodes = self.tracker.get_episode_stats()
        row = {
            "step": step,
            "env_frames": env_frames,
            **self.tracker.get_training_stats(),
            "return_mean_100": episodes["return_mean_100"],
            "length_mean_100": episodes["length_mean_100"],
            **(extra or {}),
        }
        self.tracker.reset()
        self._write("update", row)
        return row

    def log_evaluation(self, summary: Mapping[str, Any], *, step: int, env_frames: int, eval_type: str) -> None:
        """One row of the eval table from the summary of an evaluation."""
        figures = ("mean_return", "std_return", "min_return", "max_return", "median_return", "mean_length")
        row = {
            "step": step,
            "env_frames": env_frames,
            "eval_type": eval_type,
            **{f"eval_{name}": summary[name] for name in figures},
            "eval_human_normalized": summary["human_normalized"],
        }
        self._write("eval", row)

    def log_video(self, path: Path, *, step: int) -> None:
        """Show a recorded game to every sink that takes videos; the file may be gone afterwards."""
        for sink in tuple(self._sinks):
            write_video: Callable[..., None] | None = getattr(sink, "write_video", None)
            if write_video is not None:
                self._attempt(sink, partial(write_video, path, step=step))

    def save_logs(self) -> None:
        """Have every sink that can put its rows on the disk."""
        for sink in tuple(self._sinks):
            flush: Callable[[], None] | None = getattr(sink, "flush", None)
            if flush is not None:
                self._attempt(sink, flush)

    def close(self) -> None:
        for sink in tuple(self._sinks):
            self._attempt(sink, sink.close)
        self._sinks.clear()

    def state_dict(self) -> dict[str, Any]:
        """The tracker's, and where each sink with a memory was."""
        states: dict[str, Any] = {}
        for sink in tuple(self._sinks):
            remembers: Callable[[], Any] | None = getattr(sink, "state_dict", None)
            if remembers is not None:
                self._attempt(sink, partial(_put, states, type(sink).__name__, remembers))
        return {**self.tracker.state_dict(), "sinks": states}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.tracker.load_state_dict(state)
        states = state.get("sinks", {})
        for sink in tuple(self._sinks):
            if type(sink).__name__ in states:
                load = sink.load_state_dict  # type: ignore[attr-defined]
                self._bring_back(sink, partial(load, states[type(sink).__name__]))

    def begin_again(self) -> None:
        """Whatever lies in the files of a sink that can go back is of a run that left no checkpoint."""
        for sink in tuple(self._sinks):
            if hasattr(sink, "begin_again"):
                self._bring_back(sink, sink.begin_again)

    def _bring_back(self, sink: Sink, action: Callable[[], None]) -> None:
        """The run's own record must not go on with rows that will be written again: there an error is an error."""
        action() if getattr(sink, "essential", False) else self._attempt(sink, action)

    def _write(self, table: str, row: dict[str, Any]) -> None:
        for sink in tuple(self._sinks):
            self._attempt(sink, lambda sink=sink: sink.write(table, row))  # type: ignore[misc]

    def _attempt(self, sink: Sink, action: Callable[[], None]) -> None:
        name, failed_before = type(sink).__name__, self._failures.get(id(sink), 0)
        try:
            action()
        except Exception as error:  # whatever a sink may raise, the training goes on
            self._failures[id(sink)] = failed_before + 1
            if not failed_before:
                log.error("%s failed, the training goes on: %s", name, error or type(error).__name__)
                log.debug("%s", name, exc_info=True)
            if self._failures[id(sink)] >= FAILURES_ALLOWED and not getattr(sink, "essential", False):
                self._sinks.remove(sink)
                log.error("%s failed %d times in a row and is switched off: %s", name, FAILURES_ALLOWED, error)
                with suppress(Exception):
                    sink.close()
            return
        if failed_before:
            del self._failures[id(sink)]
            log.warning("%s works again, after %d failures", name, failed_before)


def _put(states: dict[str, Any], name: str, state_of: Callable[[], Any]) -> None:
    states[name] = state_of()
