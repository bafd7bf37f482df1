"""Games that ``retrograd explain`` left in a run folder: found by listing, checked before they are drawn."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from retrograd.dashboard.arrays import Array, ArrayFile, Unreadable
from retrograd.dashboard.folder import RunFolder

FOLDER = "explain"
NAME = re.compile(r"step_(\d{1,15})(?:_seed(\d{1,15}))?")
KIND = re.compile(r"[a-z_]{1,40}")
MOST_STEPS, MOST_JSON_BYTES = 20_000, 16 << 20


@dataclass(frozen=True, slots=True)
class Visited:
    """The heatmap of states; a screen has a background and counts y downwards."""

    share: Array  # [Y, X]
    x_edges: Array
    y_edges: Array
    x_label: str
    y_label: str
    steps: int
    background: Array | None  # [Y, X] uint8


@dataclass(frozen=True, slots=True)
class ExplainedGame:
    """One game of one checkpoint; pictures and maps are read when they are asked for."""

    facts: Mapping[str, Any]
    action_names: tuple[str, ...]  # empty where actions are real numbers
    action: Array  # [T] or [T, action_dim]
    reward: Array  # [T]
    value: Array  # [T]
    return_to_come: Array  # [T] NaN where it is not known
    preference: Array | None  # [T, A]
    preferred: str  # what the preference is: expected return or probability
    places: Array | None  # [T, A, Z] returns …
    mass: Array | None  # [T, A, Z] … and their probabilities
    map_steps: Array  # [M]
    largest: Mapping[str, Array]  # [M] of each kind of map, raw
    pictures: int
    visited: Visited | None
    _frames: ArrayFile | None
    _maps: ArrayFile | None

    @property
    def length(self) -> int:
        return len(self.value)

    def picture(self, step: int) -> Array | None:
        """[H, W, 3] what a human saw before this step; None where nothing is drawn."""
        if self._frames is None or step >= self.pictures:
            return None
        return self._frames.read(f"frame_{step:06d}", (None, None, 3), "u")

    def map_of(self, kind: str, step: int) -> Array | None:
        """Shares of the game's usual maximum [H, W]; None for a step without a map."""
        if self._maps is None or step not in self.map_steps or kind not in self.largest:
            return None
        # of all maps alike: a step at which nothing mattered has to look like one
        full = max(float(np.quantile(self.largest[kind], 0.9)), 1e-30)
        drawn = self._maps.read(f"{kind}_{step:06d}", (None, None), "u")
        return drawn.astype(np.float32) / 255 * min(self.size_of(kind, step) / full, 1.0)

    def maps_around(self, step: int) -> list[int]:
        """The last step before and the first after this one that have maps."""
        number = int(np.searchsorted(self.map_steps, step))
        return [int(at) for at in self.map_steps[max(number - 1, 0) : number + 1]]

    def size_of(self, kind: str, step: int) -> float:
        return float(self.largest[kind][int(np.searchsorted(self.map_steps, step))])


def explained_games(run: RunFolder) -> dict[str, str]:
    """Folder names below ``RUN/explain`` with what to call them, in the order of steps."""
    try:
        entries = [entry for entry in os.scandir(run.path / FOLDER) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return {}
    found = []
    for entry in entries:
        match = NAME.fullmatch(entry.name)
        if match and run.file(f"{FOLDER}/{entry.name}/game.json"):
            step, seed = int(match[1]), match[2]
            found.append((step, entry.name, f"step {step:,}" + (f" · seed {seed}" if seed else "")))
    return {name: label for _, name, label in sorted(found)}


def read_game(run: RunFolder, name: str) -> ExplainedGame:
    """A game that ``explained_games`` listed; Unreadable says what is wrong with it."""
    paths = {file: run.file(f"{FOLDER}/{name}/{file}") for file in _FILES}
    if paths["game.json"] is None or paths["game.npz"] is None:
        raise Unreadable("game.json or game.npz is missing")
    return _read(tuple((path, _stamp(path)) for path in paths.values()))


def video_of(run: RunFolder, name: str) -> Path | None:
    return run.file(f"{FOLDER}/{name}/game.mp4")


_FILES = ("game.json", "game.npz", "frames.npz", "saliency.npz", "visits.npz")


@lru_cache(maxsize=4)
def _read(files: tuple[tuple[Path | None, tuple[int, int]], ...]) -> ExplainedGame:
    described, arrays, frames, maps, visits = (path for path, _ in files)
    assert described is not None
    assert arrays is not None
    facts = _facts(described)
    game = _Arrays(ArrayFile(arrays))
    count = len(game.value)
    steps, largest = _map_sizes(facts)
    names = facts.get("action_names")
    words = tuple(str(name)[:40] for name in names) if isinstance(names, list) else ()
    q, probability = game.optional("q", (count, len(words))), game.optional("probability", (count, len(words)))
    places = game.optional("places", (count, len(words), None))
    mass = game.optional("mass", (count, len(words), None))
    action = game.action(len(words))
    pictures = facts.get("pictures")
    return ExplainedGame(
        facts=facts,
        action_names=words,
        action=action,
        reward=game.file.read("reward", (count,)),
        value=game.value,
        return_to_come=game.file.read("return_to_come", (count,)),
        preference=q if q is not None else probability,
        preferred="expected return" if q is not None else "probability",
        places=places if mass is not None and places is not None and mass.shape == places.shape else None,
        mass=mass if mass is not None and places is not None and mass.shape == places.shape else None,
        map_steps=steps,
        largest=largest,
        pictures=min(pictures, count) if isinstance(pictures, int) else 0,
        visited=_visited(facts, visits),
        _frames=ArrayFile(frames) if frames is not None else None,
        _maps=ArrayFile(maps) if maps is not None else None,
    )


class _Arrays:
    """What game.npz holds, everything as long as the value."""

    def __init__(self, file: ArrayFile) -> None:
        self.file, self._names = file, file.names()
        self.value = file.read("value", (None,), "f")
        if not 0 < len(self.value) <= MOST_STEPS:
            raise Unreadable(f"{file.path.name}: {len(self.value)} steps, from 1 to {MOST_STEPS} can be shown")

    def optional(self, name: str, shape: tuple[int | None, ...]) -> Array | None:
        return self.file.read(name, shape, "f") if name in self._names else None

    def action(self, num_actions: int) -> Array:
        if not num_actions:
            return self.file.read("action", (len(self.value), None))
        action = self.file.read("action", (len(self.value),), "iu")
        if len(action) and not (0 <= int(action.min()) <= int(action.max()) < num_actions):
            raise Unreadable(f"{self.file.path.name}: an action is none of the {num_actions} there are")
        return action


def _facts(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MOST_JSON_BYTES:
            raise Unreadable("game.json is too large")
        facts = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError, RecursionError) as error:
        raise Unreadable("game.json cannot be read") from error
    if not isinstance(facts, dict):
        raise Unreadable("game.json is no mapping")
    return facts


def _map_sizes(facts: Mapping[str, Any]) -> tuple[Array, dict[str, Array]]:
    told = facts.get("saliency")
    told = told if isinstance(told, dict) else {}
    try:
        steps = np.asarray(told.get("steps", []), np.int64).reshape(-1)
        largest = {
            str(kind): np.asarray(sizes, np.float64).reshape(len(steps))
            for kind, sizes in (told.get("largest") or {}).items()
            if KIND.fullmatch(str(kind))
        }
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise Unreadable("game.json: the saliency maps are not described as they should be") from error
    if (np.diff(steps) <= 0).any() or (len(steps) and steps[0] < 0):
        raise Unreadable("game.json: the steps of the saliency maps are not in order")
    return steps, {kind: np.nan_to_num(sizes, posinf=0.0) for kind, sizes in largest.items() if len(steps)}


def _visited(facts: Mapping[str, Any], path: Path | None) -> Visited | None:
    told = facts.get("visits")
    if path is None or not isinstance(told, dict):
        return None
    try:
        return _heatmap(told, ArrayFile(path))
    except Unreadable:
        return None  # the game can be looked at without it


def _heatmap(told: Mapping[str, Any], file: ArrayFile) -> Visited:
    share = file.read("share", (None, None), "f")
    rows, columns = share.shape
    steps = told.get("steps")
    return Visited(
        share=share,
        x_edges=file.read("x_edges", (columns + 1,), "f"),
        y_edges=file.read("y_edges", (rows + 1,), "f"),
        x_label=str(told.get("x_label", ""))[:80],
        y_label=str(told.get("y_label", ""))[:80],
        steps=steps if isinstance(steps, int) and steps > 0 else 1,
        background=file.read("background", (rows, columns), "u") if "background" in file.names() else None,
    )


def _stamp(path: Path | None) -> tuple[int, int]:
    try:
        stat = os.stat(path) if path is not None else None
    except OSError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_size) if stat is not None else (0, 0)
