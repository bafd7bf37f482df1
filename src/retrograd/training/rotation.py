"""Which checkpoints stay: the last few, the best one, and one every so many frames."""

from __future__ import annotations

from dataclasses import dataclass

from retrograd.core.errors import UsageError
from retrograd.training.manifest import Entries, best_of


@dataclass(frozen=True, slots=True)
class Rotation:
    """``keep_last=None`` keeps all. One alone would not be enough: it may be the one that is damaged."""

    keep_last: int | None = None
    keep_every_frames: int | None = None

    def __post_init__(self) -> None:
        if self.keep_last is not None and self.keep_last < 2:
            raise UsageError(f"keep_last is {self.keep_last}: at least 2 checkpoints are kept")
        if self.keep_every_frames is not None and self.keep_every_frames < 1:
            raise UsageError(f"keep_every_frames is {self.keep_every_frames}: must be at least 1")

    def newest(self, entries: Entries) -> Entries:
        """The last ones: a run goes on from one of these, so they alone need a replay."""
        return entries if self.keep_last is None else entries[-self.keep_last :]

    def split(self, entries: Entries) -> tuple[Entries, Entries]:
        """What stays and what goes, of checkpoints in the order in which they were saved."""
        if self.keep_last is None:
            return entries, []
        kept = {path for path, _ in self.newest(entries)}
        best = best_of(entries)
        if best is not None:
            kept.add(best)
        reached = 0
        for path, entry in entries if self.keep_every_frames is not None else ():
            mark = entry["env_frames"] // self.keep_every_frames
            if mark > reached:
                kept.add(path)
                reached = mark
        return [one for one in entries if one[0] in kept], [one for one in entries if one[0] not in kept]
