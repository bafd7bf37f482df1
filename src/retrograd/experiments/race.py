"""A race: all runs up to the same number of frames, then the one that is ahead there, alone, to its end.

For runs whose beginnings differ by luck more than by anything that was chosen. A run that waits is saved, and goes on
exactly; what the others have played is part of the price, and stays in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from retrograd.core.errors import UsageError
from retrograd.experiments.definition import RunSpec
from retrograd.experiments.ledger import Ledger, State
from retrograd.experiments.results import read_games
from retrograd.experiments.search import Grid

WINDOW = 0.2  # of the way to the pause: the games that a run is judged by ended in the last fifth of it
APART = ("env", "env_protocol", "zoo")  # scores of which cannot be compared


def check_race(specs: Sequence[RunSpec], frames: int, total_frames: int) -> None:
    """Refuse a race that decides nothing."""
    if not 0 < frames < total_frames:
        raise UsageError(f"a race to {frames} frames must end within the run, above 0 and below {total_frames}")
    if len(specs) < 2:
        raise UsageError("a race needs at least two runs, e.g. seed=0,1,2,3")
    for key in APART:
        if len({spec.settings.get(key) for spec in specs}) > 1:
            raise UsageError(f"runs of several {key} cannot race: their scores are not of one scale")


class Race(Grid):
    """A grid whose runs wait at ``frames``."""

    def __init__(
        self,
        specs: Sequence[RunSpec],
        ledger: Ledger,
        frames: int,
        folder_of: Callable[[RunSpec], Path],
        say: Callable[[str], None],
    ) -> None:
        super().__init__(specs, ledger)
        self._frames, self._folder_of, self._say = frames, folder_of, say
        self._waiting = iter([spec for spec in self._waiting if self._state(spec) is not State.PAUSED])

    def next(self) -> RunSpec | None:
        waiting = super().next()
        if waiting is not None:
            return waiting
        paused = [spec for spec in self._specs if self._state(spec) is State.PAUSED]
        if not paused or any(self._state(spec) in (State.RUNNING, State.STOPPED) for spec in self._specs):
            return None
        return self._choose(paused)

    def pause(self, spec: RunSpec) -> int | None:
        """Where a run that is started now is to wait; None of the one that is chosen."""
        return None if self.alone(spec) else self._frames

    def alone(self, spec: RunSpec) -> bool:
        """Whether no other is left to be compared with."""
        gone = (State.PRUNED, State.FAILED)
        return all(self._state(other) in gone for other in self._specs if other.name != spec.name)

    def winner(self) -> RunSpec | None:
        """The one that was chosen, once it has come to its end."""
        return next((spec for spec in self._specs if self._state(spec) is State.FINISHED), None)

    def _choose(self, paused: Sequence[RunSpec]) -> RunSpec:
        scores = {spec.name: self._score(spec) for spec in paused}
        best = max(paused, key=lambda spec: scores[spec.name])
        self._say(f"{best.name} goes on alone, with {scores[best.name]:.4g} at the pause")
        for spec in paused:
            if spec.name != best.name:
                reason = f"{scores[spec.name]:.4g} at the pause, {best.name} had {scores[best.name]:.4g}"
                self._ledger.change(spec.name, State.PRUNED, reason=reason)
        return best

    def _score(self, spec: RunSpec) -> float:
        score = read_games(self._folder_of(spec)).at(self._frames, WINDOW * self._frames)
        return -math.inf if score is None else score

    def _state(self, spec: RunSpec) -> State:
        return self._ledger[spec.name].state
