"""Are two runs the same? SHA-256 of what their newest checkpoints and logs hold, without clocks and file layouts."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from retrograd.replay.saving import ReplaySaver
from retrograd.tracking.csv import TIME_COLUMNS
from retrograd.training.checkpoint import load_newest

CLOCKS = ("trainer",)  # parts that hold times of the machine
LOGS = ("train_log.csv", "update_log.csv", "eval_log.csv")


def fingerprint(run_folder: str | Path) -> dict[str, str]:
    """One hash for each part of the newest checkpoint, its random states, its replay, and each log.

    Equal hashes mean equal bits: what a part holds, not how it lies in a file. Columns with times are left out.
    """
    folder = Path(run_folder)
    checkpoint = load_newest(folder, with_replay=True)
    hashes = {name: _hash(part) for name, part in checkpoint.parts.items() if name not in CLOCKS}
    hashes["rng"] = _hash(checkpoint.rng)
    if checkpoint.replay is not None:
        hashes["replay"] = _hash_replay(folder / "replay", checkpoint.replay)
    return hashes | {name: _hash_log(folder / name) for name in LOGS if (folder / name).is_file()}


def differences(left: Mapping[str, str], right: Mapping[str, str]) -> list[str]:
    """What is not the same, by name."""
    return sorted(name for name in {*left, *right} if left.get(name) != right.get(name))


def _hash(value: Any) -> str:
    digest = hashlib.sha256()
    _feed(digest, value)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Every value with its type and length before it, so that no two different ones feed the same bytes."""
    if isinstance(value, torch.Tensor):
        value = value.contiguous().numpy()
    if isinstance(value, np.ndarray):
        digest.update(f"array {value.dtype.str} {value.shape} ".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        digest.update(f"map {len(value)} ".encode())
        for key in sorted(value, key=str):
            _feed(digest, str(key))
            _feed(digest, value[key])
    elif isinstance(value, list | tuple):
        digest.update(f"list {len(value)} ".encode())
        for item in value:
            _feed(digest, item)
    else:
        text = repr(value).encode()
        digest.update(f"{type(value).__name__} {len(text)} ".encode() + text)


def _hash_replay(folder: Path, name: str) -> str:
    """Row by row in the order of time, wherever segments were cut."""
    runs, light = ReplaySaver(folder).contents(name)
    rows: dict[int, Any] = {}
    for row, first, frames, fields in runs:
        if row not in rows:
            rows[row] = {"first": first, "hashes": {}}
        for key, array in {**{f"frames {k}": a for k, a in frames.items()}, **fields}.items():
            one = rows[row]["hashes"].setdefault(key, hashlib.sha256())
            one.update(np.ascontiguousarray(array).tobytes())
    contents = {
        str(row): {"first": part["first"], **{key: one.hexdigest() for key, one in part["hashes"].items()}}
        for row, part in rows.items()
    }
    return _hash({"contents": contents, "light": light})


def _hash_log(path: Path) -> str:
    with open(path, encoding="utf-8", newline="") as file:
        rows = [{name: cell for name, cell in row.items() if name not in TIME_COLUMNS} for row in csv.DictReader(file)]
    return _hash(rows)
