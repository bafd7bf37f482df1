"""What the trainer gets of an algorithm's loop: how to begin it, and everything of it that a checkpoint holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from retrograd.core.protocols import Stateful
from retrograd.training.player import Player


class Loop(NamedTuple):
    """The first two are needed to train, the others to go on exactly where a run was saved."""

    begin: Callable[[], Iterator[None]]
    log_extras: Callable[[], Mapping[str, float]] = dict  # what it adds to the rows of the update log
    player: Player | None = None  # None where others play, such as asynchronous workers
    parts: Mapping[str, Stateful] = {}  # such as a rollout that is not full yet
    replay: Any = None  # saved in files of its own, as it is large
