"""Checkpoints: immutable folders that are whole or not there, checked before they are trusted.

A checkpoint ``checkpoints/step_000500000/`` holds ``agent.pt`` (the state dicts of all parts),
``rng_states.pt``, ``metrics.json``, ``config.yaml``, perhaps ``video.mp4``, and ``manifest.json`` with size
and SHA-256 of each, and of the replay's files in ``<run>/replay``. The manifests are the truth; ``catalog.json``
and the links ``best`` and ``latest`` are derived from them at every save, so that a run killed between two
writes heals itself.
"""

from __future__ import annotations

import errno
import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from retrograd.core import disk
from retrograd.core.errors import CheckpointError, UsageError, suggest
from retrograd.core.plain_yaml import load_plain_yaml
from retrograd.core.protocols import Stateful
from retrograd.training import durable
from retrograd.training.manifest import (
    FOLDER_NAME,
    REQUIRED,
    Entries,
    best_of,
    describe_files,
    replay_folder,
    scan,
    seal,
    step_of,
    verify,
)
from retrograd.training.plain import FORMAT, copy_plain, load_mapping, load_tensors, save_bytes, save_tensors
from retrograd.training.rotation import Rotation
from retrograd.training.versions import package_versions

__all__ = [
    "FOLDER_NAME",
    "FORMAT",
    "REQUIRED",
    "Checkpoint",
    "CheckpointStore",
    "load",
    "load_newest",
    "locate",
    "verify",
]

KEEP_ALL = Rotation()
SavedReplay = Mapping[str, Any]  # {"index": name, "files": {name: {"bytes": …, "sha256": …}}}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was saved; arrays are tensors on the CPU."""

    step: int
    env_frames: int
    parts: dict[str, dict[str, Any]]
    rng: dict[str, Any]
    metrics: dict[str, Any]
    config: dict[str, Any]
    path: Path
    replay: str | None = None  # the name by which the run's replay folder finds this save


class CheckpointStore:
    """The checkpoints of one run; the run's only writer of them.

    ``keep_replay_files`` is told after each save which files of the replay the newest checkpoints name: those that are
    kept for other reasons lose theirs, or each would keep a whole replay on the disk.
    """

    def __init__(
        self,
        run_folder: Path,
        rotation: Rotation = KEEP_ALL,
        *,
        keep_replay_files: Callable[[set[str]], None] | None = None,
    ) -> None:
        self.folder = run_folder / "checkpoints"
        self.rotation = rotation
        self._keep_replay_files = keep_replay_files

    def save(self, **contents: Any) -> Path:
        """Write at once what ``prepare`` takes, and return where it is."""
        return self.prepare(**contents)()

    def prepare(
        self,
        *,
        step: int,
        env_frames: int,
        parts: Mapping[str, Stateful | Mapping[str, Any]],
        rng: Mapping[str, Any],
        metrics: Mapping[str, Any],
        config_yaml: str,
        video: Path | None = None,
        score: float | None = None,
        replay: Callable[[], SavedReplay] | None = None,
    ) -> Callable[[], Path]:
        """Copy everything now; the function returned writes it, in another thread if need be, and says where.

        ``score`` is that of a full evaluation. ``replay`` writes the replay's own files, before this checkpoint names
        them. A step saved twice (after going back to an older checkpoint) gets a second folder.

        An error leaves the earlier checkpoints untouched, and this one whole or not there at all. It is raised also
        when only the index or the rotation failed: a disk that refuses those will not take the next one either.
        """
        if score is not None and not math.isfinite(score):
            raise UsageError(f"score is {score}: the score of an evaluation is a finite number")
        states = {name: part if isinstance(part, Mapping) else part.state_dict() for name, part in parts.items()}
        agent = {"format": FORMAT, "step": step, "env_frames": env_frames, "parts": states}
        plain = copy_plain(agent, "agent.pt")
        rng_states = copy_plain({"format": FORMAT, "rng": dict(rng)}, "rng_states.pt")
        texts = {"metrics.json": durable.encode_json(metrics), "config.yaml": config_yaml.encode()}

        def write() -> Path:
            self._make_folder()
            saved_replay = None if replay is None else replay()
            final = self._free_name(step)
            temporary = self.folder / f".tmp-{final.name}"
            try:
                disk.system.mkdir(temporary)
                save_tensors(temporary / "agent.pt", plain)
                save_tensors(temporary / "rng_states.pt", rng_states)
                for name, data in texts.items():
                    save_bytes(temporary / name, data)
                if video is not None:
                    with open(video, "rb") as source, durable.create_file(temporary / "video.mp4") as copy:
                        shutil.copyfileobj(source, copy, 1 << 20)
                manifest = self._describe(temporary, step, env_frames, score, saved_replay)
                save_bytes(temporary / "manifest.json", durable.encode_json(seal(manifest)))
                durable.publish_folder(temporary, final)
            except BaseException:
                durable.remove_folder(temporary)
                raise
            if video is not None:
                disk.remove_file(video)
            self._rotate(final)
            return final

        return write

    def _make_folder(self) -> None:
        disk.make_folders(self.folder)
        # of a run that was killed while saving or rotating
        for leftover in (*self.folder.glob(".tmp-step_*"), *self.folder.glob(".del-step_*")):
            durable.remove_folder(leftover)

    def _free_name(self, step: int) -> Path:
        name = f"step_{step:09d}"
        take = 1
        while os.path.lexists(self.folder / name):
            take += 1
            name = f"step_{step:09d}_take{take}"
        return self.folder / name

    def _describe(
        self, folder: Path, step: int, env_frames: int, score: float | None, replay: SavedReplay | None
    ) -> dict[str, Any]:
        return {
            "format_version": FORMAT,
            # counts saves, because neither the step (a run may go back) nor the clock tells which is newest
            "serial": 1 + max((entry["serial"] for _, entry in scan(self.folder)[0]), default=0),
            "step": step,
            "env_frames": env_frames,
            "eval_score": score,
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "packages": dict(package_versions()),
            "files": describe_files(folder),
            "replay": None if replay is None else dict(replay),
        }

    def _rotate(self, written: Path) -> None:
        """Bring the index up to date, then remove what nothing asks to keep."""
        entries, _ = scan(self.folder)
        kept, dropped = self.rotation.split(entries)
        if dropped:
            verify(written)  # nothing goes before what replaces it has been read back
        self._index(kept)
        for path, _ in dropped:
            durable.discard_folder(path)
        if self._keep_replay_files is not None:
            newest = self.rotation.newest(kept)
            named = (entry["replay"]["files"] for _, entry in newest if entry.get("replay") is not None)
            self._keep_replay_files({name for files in named for name in files})

    def _index(self, entries: Entries) -> None:
        catalog = [
            {
                "step": entry["step"],
                "path": folder.name,
                "eval_score": entry["eval_score"],
                "timestamp": entry["timestamp"],
            }
            for folder, entry in entries
        ]
        durable.write_json(self.folder / "catalog.json", catalog)
        self._link("latest", entries[-1][0].name)
        best = best_of(entries)
        if best is not None:
            self._link("best", best.name)

    def _link(self, name: str, target: str) -> None:
        try:
            durable.replace_link(self.folder / name, target)
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
                raise
            # locate() then works from the manifests
            log.warning("this file system has no links: %s is missing in %s", name, self.folder)


def locate(path: Path, *, prefer: Literal["best", "latest"] = "best") -> Path:
    """The checkpoint folder meant by a run, its checkpoints folder, a checkpoint, a link or an ``agent.pt``."""
    if prefer not in ("best", "latest"):
        raise UsageError(f"prefer is {prefer!r}, allowed are 'best' and 'latest'.{suggest(prefer, ('best', 'latest'))}")
    if path.is_file() and path.name == "agent.pt":
        return path.parent.resolve()
    if (path / "manifest.json").is_file() or (path / "agent.pt").is_file():
        return path.resolve()
    if path.is_symlink() and not path.exists():
        return _replace_dangling(path)
    folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    for link in dict.fromkeys((folder / prefer, folder / "latest")):
        if (link / "manifest.json").is_file():
            return link.resolve()
        if link.is_symlink() and not link.exists():
            return _replace_dangling(link)
        if link.name == "best" and (best := best_of(scan(folder)[0])) is not None:
            return best.resolve()
    entries = scan(folder)[0]
    if entries:
        return entries[-1][0].resolve()
    raise CheckpointError(
        f"no checkpoint in {path}: looked for agent.pt, for the links {prefer} and latest, "
        f"and for folders step_<number> with a readable manifest.json in {folder}"
    )


def load(path: Path, *, prefer: Literal["best", "latest"] = "best", with_replay: bool = False) -> Checkpoint:
    """Read a checkpoint after checking every file of it against the manifest, those of its replay if asked to."""
    folder = locate(path, prefer=prefer)
    manifest = verify(folder, with_replay=with_replay)
    agent = load_tensors(folder / "agent.pt", ("step", "env_frames", "parts"))
    if agent["step"] != manifest["step"]:
        raise CheckpointError(f"{folder / 'agent.pt'}: is of step {agent['step']}, the manifest of {manifest['step']}")
    return Checkpoint(
        step=agent["step"],
        env_frames=agent["env_frames"],
        parts=agent["parts"],
        rng=load_tensors(folder / "rng_states.pt", ("rng",))["rng"],
        metrics=load_mapping(folder / "metrics.json", json.loads),
        config=load_mapping(folder / "config.yaml", load_plain_yaml),
        path=folder,
        replay=None if manifest.get("replay") is None else manifest["replay"]["index"],
    )


def load_newest(run_folder: Path, *, with_replay: bool = False) -> Checkpoint:
    """The newest checkpoint that is whole; each newer one that is not is named in a warning.

    If none is whole with its replay, one that has outlived its replay is loaded without.
    """
    folder = run_folder / "checkpoints" if (run_folder / "checkpoints").is_dir() else run_folder
    readable, unreadable = scan(folder)
    problems: list[str] = []
    loaded: Checkpoint | None = None
    for path, _ in reversed(readable):
        try:
            loaded = load(path, with_replay=with_replay)
            break
        except CheckpointError as error:
            problems.append(str(error))
    if loaded is None and with_replay:
        loaded = _load_without_replay(readable)
    problems += [text for path, text in unreadable.items() if loaded is None or step_of(path) >= loaded.step]
    for problem in problems:
        log.warning("checkpoint skipped: %s", problem)
    if loaded is None:
        found = "; ".join(problems) if problems else "it has no folder step_<number>"
        raise CheckpointError(f"no valid checkpoint in {folder}: {found}")
    return loaded


def _load_without_replay(entries: Entries) -> Checkpoint | None:
    """The newest one that is whole but for its replay, if that was removed with age.

    A replay that is damaged is another matter: whoever wants to do without it can go on from the newest step.
    """
    for path, entry in reversed(entries):
        try:
            loaded = load(path)
        except CheckpointError:
            continue
        if (replay_folder(path) / entry["replay"]["index"]).exists():
            return None
        log.warning("%s is loaded without its replay, which only the last checkpoints of a run keep", path)
        return replace(loaded, replay=None)
    return None


def _replace_dangling(link: Path) -> Path:
    target = load_newest(link.parent).path
    log.warning("%s points to %s, which is not there: using %s", link, os.readlink(link), target.name)
    return target
