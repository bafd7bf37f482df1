"""Manifests: which files a checkpoint is made of, with size and SHA-256 of each.

The manifests are the truth about a run's checkpoints. Each is sealed by a hash of its own entries. A checkpoint whose
replay was saved also names files of ``<run>/replay``, which it shares with other checkpoints.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from retrograd.core.errors import CheckpointError
from retrograd.training import durable
from retrograd.training.plain import FORMAT, load_mapping, reason, require_file

REQUIRED = ("agent.pt", "rng_states.pt", "metrics.json", "config.yaml")
FOLDER_NAME = re.compile(r"step_(\d{9,})(?:_take(\d+))?")

Entries = list[tuple[Path, dict[str, Any]]]


def describe_files(folder: Path) -> dict[str, dict[str, Any]]:
    """Size and hash of every file in a folder."""
    return {path.name: {"bytes": path.stat().st_size, "sha256": sha256(path)} for path in sorted(folder.iterdir())}


def verify(folder: Path, *, with_replay: bool = False) -> dict[str, Any]:
    """The manifest, once every file was found to be what it says."""
    manifest = read_manifest(folder)
    _verify_files(folder, manifest["files"])
    if with_replay and manifest.get("replay") is not None:
        _verify_files(replay_folder(folder), manifest["replay"]["files"])
    return manifest


def replay_folder(checkpoint: Path) -> Path:
    """Where the run of this checkpoint keeps its replay."""
    return checkpoint.parent.parent / "replay"


def _verify_files(folder: Path, files: Mapping[str, dict[str, Any]]) -> None:
    for name, expected in files.items():
        path = folder / name
        try:
            size = require_file(path)
            if size != expected["bytes"]:
                raise CheckpointError(f"{path}: has {size} bytes, its manifest says {expected['bytes']}")
            if sha256(path) != expected["sha256"]:
                raise CheckpointError(f"{path}: its content differs from the one saved (SHA-256 does not match)")
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({reason(error)})") from error


def read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / "manifest.json"
    manifest = load_mapping(path, json.loads)
    if manifest.get("format_version") != FORMAT:
        raise CheckpointError(
            f"{path}: format_version is {manifest.get('format_version')!r}, this version of Retrograd reads {FORMAT}"
        )
    if manifest != seal(manifest):
        raise CheckpointError(f"{path}: its content differs from the one saved (SHA-256 does not match)")
    files, replay = manifest.get("files"), manifest.get("replay")
    whole = (
        all(type(manifest.get(key)) is int for key in ("serial", "step", "env_frames"))
        and isinstance(manifest.get("timestamp"), str)
        and type(manifest.get("eval_score", "")) in (int, float, type(None))
        and _lists_files(files, REQUIRED)
        and (replay is None or (isinstance(replay, dict) and _lists_files(replay.get("files"))))
        and (replay is None or replay.get("index") in replay["files"])
    )
    if not whole:
        raise CheckpointError(f"{path}: is incomplete or has values of the wrong type")
    return manifest


def _lists_files(files: Any, required: tuple[str, ...] = ()) -> bool:
    # a name with a folder in it could point outside the checkpoint
    return (
        isinstance(files, dict)
        and all(name in files for name in required)
        and all(name == Path(name).name and isinstance(entry, dict) for name, entry in files.items())
        and all(type(entry.get("bytes")) is int and isinstance(entry.get("sha256"), str) for entry in files.values())
    )


def seal(manifest: dict[str, Any]) -> dict[str, Any]:
    """The manifest with the hash of its other entries, since no other file vouches for it."""
    rest = {key: value for key, value in manifest.items() if key != "sha256"}
    return {**rest, "sha256": hashlib.sha256(durable.encode_json(rest)).hexdigest()}


def step_of(folder: Path) -> int:
    match = FOLDER_NAME.fullmatch(folder.name)
    assert match is not None
    return int(match[1])


def scan(folder: Path) -> tuple[Entries, dict[Path, str]]:
    """Checkpoints with a readable manifest, oldest save first, and what is wrong with the others."""
    entries, problems = [], {}
    for path in _step_folders(folder):
        try:
            entries.append((path, read_manifest(path)))
        except CheckpointError as error:
            problems[path] = str(error)
    return sorted(entries, key=lambda entry: (entry[1]["serial"], entry[0].name)), problems


def _step_folders(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        yield from (path for path in folder.iterdir() if FOLDER_NAME.fullmatch(path.name) and path.is_dir())


def has_checkpoint(run_folder: Path) -> bool:
    """Whether a run has saved anything, readable or not; links may be missing where folders are not."""
    return any(_step_folders(run_folder / "checkpoints"))


def best_of(entries: Entries) -> Path | None:
    """The highest score of a full evaluation; of equal ones the first."""
    scored = [(path, entry["eval_score"]) for path, entry in entries if entry["eval_score"] is not None]
    return max(scored, key=lambda pair: pair[1])[0] if scored else None


def sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
