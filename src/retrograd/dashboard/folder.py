"""The output folder and the runs in it. A run is found by listing, never by a path that somebody typed.

Names from the address bar or a widget are looked up among the runs that the listing found, so that no name, however
written, leads out of the folder; files of a run are checked to lie in the folder after links have been followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

DEPTH = 4  # sweeps/NAME/runs/RUN
MARKS = (".hydra/config.yaml", "train_log.csv", "update_log.csv", "eval_log.csv")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One run: ``name`` is its place below the output folder, and its name everywhere in the dashboard."""

    name: str
    path: Path
    root: Path

    def file(self, name: str) -> Path | None:
        """A file of the run, if it is there and really in the output folder."""
        path = self.path / name
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError, ValueError):
            return None
        return real if real.is_relative_to(self.root) else None


class OutputFolder:
    """All runs below one folder."""

    def __init__(self, folder: str | Path) -> None:
        self.root = Path(folder).resolve()

    @property
    def exists(self) -> bool:
        return self.root.is_dir()

    def runs(self) -> dict[str, RunFolder]:
        """Every run by name, in order."""
        found = sorted(self._walk(self.root, DEPTH))
        # a name that is no text (bytes of another encoding) is shown with marks in place of what cannot be shown
        return {
            name.encode("utf-8", "replace").decode(): RunFolder(
                name.encode("utf-8", "replace").decode(), self.root / name, self.root
            )
            for name in found
        }

    def series(self, runs: Iterable[str] | None = None) -> dict[str, tuple[str, ...]]:
        """Folders that hold several runs (sweeps, ablations), with the names of their runs."""
        groups: dict[str, list[str]] = {}
        for name in self.runs() if runs is None else runs:
            parts = Path(name).parts
            for depth in range(1, len(parts)):
                above = "/".join(parts[:depth])
                if (self.root / above / "sweep.yaml").is_file():
                    groups.setdefault(above, []).append(name)
        return {name: tuple(runs) for name, runs in sorted(groups.items())}

    def _walk(self, folder: Path, depth: int) -> Iterator[str]:
        try:
            entries = list(os.scandir(folder))
        except OSError:
            return
        for entry in entries:
            # a link may point anywhere; a run is a folder of its own
            if entry.name.startswith(".") or entry.is_symlink() or not entry.is_dir(follow_symlinks=False):
                continue
            path = Path(entry.path)
            if any((path / mark).exists() for mark in MARKS):
                yield path.relative_to(self.root).as_posix()
            elif depth > 1 and entry.name not in ("checkpoints", "replay"):
                yield from self._walk(path, depth - 1)
