"""Checkpoints: immutable folders that are whole or not there, checked before they are trusted.

A checkpoint ``checkpoints/step_000500000/`` holds ``agent.pt`` (the state dicts of all parts),
``rng_states.pt``, ``metrics.json``, ``config.yaml``, perhaps ``video.mp4``, and ``manifest.json`` with size
and SHA-256 of each. The manifests are the truth; ``catalog.json`` and the links ``best`` and ``latest``
are derived from them at every save, so that a run killed between two writes heals itself.

State dicts hold tensors and plain values. Loading never runs code from the file, which rules out
numpy's pickles: arrays are saved as tensors and come back as tensors, bytes as uint8 tensors.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import math
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import yaml

from retrograd.core import disk
from retrograd.core.errors import CheckpointError, UsageError, suggest
from retrograd.core.protocols import Stateful
from retrograd.training import durable
from retrograd.training.versions import package_versions

FORMAT = 1
REQUIRED = ("agent.pt", "rng_states.pt", "metrics.json", "config.yaml")
FOLDER_NAME = re.compile(r"step_(\d{9,})(?:_take(\d+))?")

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


class CheckpointStore:
    """The checkpoints of one run; the run's only writer of them."""

    def __init__(self, run_folder: Path) -> None:
        self.folder = run_folder / "checkpoints"

    def save(
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
    ) -> Path:
        """Save everything under a new name and return it; ``score`` is that of a full evaluation.

        An error leaves the earlier checkpoints untouched, and no part of this one: it is there whole or not
        at all. A step saved twice (after going back to an older checkpoint) gets a second folder.
        """
        if score is not None and not math.isfinite(score):
            raise UsageError(f"score is {score}: the score of an evaluation is a finite number")
        disk.make_folders(self.folder)
        for leftover in self.folder.glob(".tmp-step_*"):  # of a run that was killed while saving
            durable.remove_folder(leftover)
        final = self._free_name(step)
        temporary = self.folder / f".tmp-{final.name}"
        try:
            disk.system.mkdir(temporary)
            states = {name: _state_of(part) for name, part in parts.items()}
            agent = {"format": FORMAT, "step": step, "env_frames": env_frames, "parts": states}
            _save_tensors(temporary / "agent.pt", agent)
            _save_tensors(temporary / "rng_states.pt", {"format": FORMAT, "rng": dict(rng)})
            _save_bytes(temporary / "metrics.json", durable.encode_json(metrics))
            _save_bytes(temporary / "config.yaml", config_yaml.encode())
            if video is not None:
                with open(video, "rb") as source, durable.create_file(temporary / "video.mp4") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
            manifest = self._describe(temporary, step, env_frames, score)
            _save_bytes(temporary / "manifest.json", durable.encode_json(_seal(manifest)))
            durable.publish_folder(temporary, final)
        except BaseException:
            durable.remove_folder(temporary)
            raise
        if video is not None:
            disk.remove_file(video)
        self._index()
        return final

    def _free_name(self, step: int) -> Path:
        name = f"step_{step:09d}"
        take = 1
        while os.path.lexists(self.folder / name):
            take += 1
            name = f"step_{step:09d}_take{take}"
        return self.folder / name

    def _describe(self, folder: Path, step: int, env_frames: int, score: float | None) -> dict[str, Any]:
        return {
            "format_version": FORMAT,
            # counts saves, because neither the step (a run may go back) nor the clock tells which is newest
            "serial": 1 + max((entry["serial"] for _, entry in _entries(self.folder)), default=0),
            "step": step,
            "env_frames": env_frames,
            "eval_score": score,
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "packages": package_versions(),
            "files": {
                path.name: {"bytes": path.stat().st_size, "sha256": _sha256(path)} for path in sorted(folder.iterdir())
            },
        }

    def _index(self) -> None:
        entries = _entries(self.folder)
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
        best = _best(entries)
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
        if link.name == "best" and (best := _best(_entries(folder))) is not None:
            return best.resolve()
    entries = _entries(folder)
    if entries:
        return entries[-1][0].resolve()
    raise CheckpointError(
        f"no checkpoint in {path}: looked for agent.pt, for the links {prefer} and latest, "
        f"and for folders step_<number> with a readable manifest.json in {folder}"
    )


def load(path: Path, *, prefer: Literal["best", "latest"] = "best") -> Checkpoint:
    """Read a checkpoint after checking every file of it against the manifest."""
    folder = locate(path, prefer=prefer)
    manifest = verify(folder)
    agent = _load_tensors(folder / "agent.pt", ("step", "env_frames", "parts"))
    if agent["step"] != manifest["step"]:
        raise CheckpointError(f"{folder / 'agent.pt'}: is of step {agent['step']}, the manifest of {manifest['step']}")
    return Checkpoint(
        step=agent["step"],
        env_frames=agent["env_frames"],
        parts=agent["parts"],
        rng=_load_tensors(folder / "rng_states.pt", ("rng",))["rng"],
        metrics=_load_mapping(folder / "metrics.json", json.loads),
        config=_load_mapping(folder / "config.yaml", yaml.safe_load),
        path=folder,
    )


def load_newest(run_folder: Path) -> Checkpoint:
    """The newest checkpoint that is whole; each newer one that is not is named in a warning."""
    folder = run_folder / "checkpoints" if (run_folder / "checkpoints").is_dir() else run_folder
    readable, unreadable = _scan(folder)
    problems: list[str] = []
    loaded: Checkpoint | None = None
    for path, _ in reversed(readable):
        try:
            loaded = load(path)
            break
        except CheckpointError as error:
            problems.append(str(error))
    problems += [text for path, text in unreadable.items() if loaded is None or _step_of(path) >= loaded.step]
    for problem in problems:
        log.warning("checkpoint skipped: %s", problem)
    if loaded is None:
        found = "; ".join(problems) if problems else "it has no folder step_<number>"
        raise CheckpointError(f"no valid checkpoint in {folder}: {found}")
    return loaded


def verify(folder: Path) -> dict[str, Any]:
    """The manifest, once every file was found to be what it says."""
    manifest = _read_manifest(folder)
    for name, expected in manifest["files"].items():
        path = folder / name
        try:
            size = path.stat().st_size
            if size != expected["bytes"]:
                raise CheckpointError(f"{path}: has {size} bytes, its manifest says {expected['bytes']}")
            if _sha256(path) != expected["sha256"]:
                raise CheckpointError(f"{path}: its content differs from the one saved (SHA-256 does not match)")
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({_reason(error)})") from error
    return manifest


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    manifest = _load_mapping(path, json.loads)
    if manifest.get("format_version") != FORMAT:
        raise CheckpointError(
            f"{path}: format_version is {manifest.get('format_version')!r}, this version of Retrograd reads {FORMAT}"
        )
    if manifest != _seal(manifest):
        raise CheckpointError(f"{path}: its content differs from the one saved (SHA-256 does not match)")
    files = manifest.get("files")
    whole = (
        all(type(manifest.get(key)) is int for key in ("serial", "step", "env_frames"))
        and isinstance(manifest.get("timestamp"), str)
        and type(manifest.get("eval_score", "")) in (int, float, type(None))
        and isinstance(files, dict)
        and all(name in files for name in REQUIRED)
        # a name with a folder in it could point outside the checkpoint
        and all(name == Path(name).name and isinstance(entry, dict) for name, entry in files.items())
        and all(type(entry.get("bytes")) is int and isinstance(entry.get("sha256"), str) for entry in files.values())
    )
    if not whole:
        raise CheckpointError(f"{path}: is incomplete or has values of the wrong type")
    return manifest


def _seal(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with the hash of its other entries, since no other file vouches for it."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return {**rest, "sha256": hashlib.sha256(durable.encode_json(rest)).hexdigest()}


def _step_folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if FOLDER_NAME.fullmatch(path.name) and path.is_dir())


def _step_of(folder: Path) -> int:
    match = FOLDER_NAME.fullmatch(folder.name)
    assert match is not None
    return int(match[1])


def _entries(folder: Path) -> list[tuple[Path, dict[str, Any]]]:
    """Checkpoints with a readable manifest, oldest save first."""
    return _scan(folder)[0]


def _scan(folder: Path) -> tuple[list[tuple[Path, dict[str, Any]]], dict[Path, str]]:
    """Checkpoints with a readable manifest, oldest save first, and what is wrong with the others."""
    entries, problems = [], {}
    for path in _step_folders(folder):
        try:
            entries.append((path, _read_manifest(path)))
        except CheckpointError as error:
            problems[path] = str(error)
    return sorted(entries, key=lambda entry: (entry[1]["serial"], entry[0].name)), problems


def _best(entries: list[tuple[Path, dict[str, Any]]]) -> Path | None:
    """The highest score of a full evaluation; of equal ones the first."""
    scored = [(path, entry["eval_score"]) for path, entry in entries if entry["eval_score"] is not None]
    return max(scored, key=lambda pair: pair[1])[0] if scored else None


def _replace_dangling(link: Path) -> Path:
    target = load_newest(link.parent).path
    log.warning("%s points to %s, which is not there: using %s", link, os.readlink(link), target.name)
    return target


def _state_of(part: Stateful | Mapping[str, Any]) -> Mapping[str, Any]:
    return part if isinstance(part, Mapping) else part.state_dict()


def _save_bytes(path: Path, data: bytes) -> None:
    with durable.create_file(path) as file:
        file.write(data)


def _save_tensors(path: Path, value: dict[str, Any]) -> None:
    plain = _to_plain(value, path.name)
    with durable.create_file(path) as file:
        torch.save(plain, file)


def _to_plain(value: Any, where: str) -> Any:
    """``value`` as tensors and plain Python values, without copying large arrays."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.Tensor):
        tensor = value.detach().cpu()
        # a view would take the whole tensor it looks at along
        whole = tensor.untyped_storage().nbytes() <= tensor.numel() * tensor.element_size()
        return tensor if whole else tensor.clone()
    if isinstance(value, bytes | bytearray):
        return torch.from_numpy(np.frombuffer(bytes(value), np.uint8).copy())
    if isinstance(value, np.generic) and type(value.item()) in (bool, int, float, str):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype.isnative:
        return torch.from_numpy(value if value.flags.c_contiguous and value.flags.writeable else value.copy())
    if isinstance(value, Mapping):
        return {_plain_key(key, where): _to_plain(item, f"{where}[{key!r}]") for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_to_plain(item, f"{where}[{index}]") for index, item in enumerate(value))
    kind = f"{type(value).__name__} of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise CheckpointError(
        f"{where} is a {kind}: a checkpoint holds tensors, arrays of numbers, numbers, strings, bytes, None, "
        "and lists, tuples and dicts of them"
    )


def _plain_key(key: Any, where: str) -> str | int:
    if type(key) not in (str, int):
        raise CheckpointError(f"{where} has the key {key!r}: keys are strings or integers")
    return key  # type: ignore[no-any-return]


def _load_tensors(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > path.stat().st_size:  # ours are stored uncompressed; others may unpack to any size
            raise CheckpointError(f"{path}: is compressed, which no checkpoint of Retrograd is")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except Exception as error:  # a damaged or hostile file may fail anywhere in the reader
        raise CheckpointError(f"{path}: cannot be read ({_reason(error)})") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or any(key not in content for key in keys):
        raise CheckpointError(f"{path}: does not hold {', '.join(keys)} in format {FORMAT}")
    return content


def _load_mapping(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except Exception as error:  # a damaged or hostile file may fail anywhere in the reader
        raise CheckpointError(f"{path}: cannot be read ({_reason(error)})") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: holds {type(content).__name__}, expected named values")
    return content


def _reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return text.splitlines()[0]


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
