"""Numbers behind the charts: smoothing, seeds on one grid, intervals, published curves."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]

# protocol of a run -> protocols of published curves that were made the same way
COMPARABLE = {
    "paper_v4": ("no_sticky_eval", "no_sticky_train"),
    "modern_v5_sticky": ("sticky_eval", "sticky_train"),
    "dopamine": ("sticky_train", "sticky_eval"),
}
ENOUGH_RUNS = 3  # for an interval


@dataclass(frozen=True, slots=True)
class Published:
    """A published curve of the same game and kind of protocol."""

    label: str
    frames: Array
    score: Array


def smooth(values: Array, weight: float) -> Array:
    """Exponential mean that forgets nothing of the first value's share; 0 leaves the values as they are."""
    if weight <= 0 or len(values) < 2:
        return values
    out = np.empty_like(values)
    mean, total = 0.0, 0.0
    for index, value in enumerate(values):
        if np.isfinite(value):
            mean, total = weight * mean + (1 - weight) * value, weight * total + (1 - weight)
        out[index] = mean / total if total else np.nan
    return out


def on_grid(curves: Sequence[tuple[Array, Array]], points: int = 200) -> tuple[Array, Array]:
    """Curves on the x values that all of them cover: grid [P] and values [R, P]."""
    begin = max(float(x[0]) for x, _ in curves)
    end = min(float(x[-1]) for x, _ in curves)
    grid = np.linspace(begin, max(end, begin), points)
    return grid, np.stack([np.interp(grid, x, y) for x, y in curves])


def interquartile_mean(values: Array) -> float:
    """Mean of the middle half, sample by sample as in a trimmed mean."""
    ordered = np.sort(np.asarray(values, float))
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def interval(values: Array, seed: int = 0, draws: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of the interquartile mean."""
    rng = np.random.default_rng(seed)
    ordered = np.sort(rng.choice(np.asarray(values, float), (draws, len(values))), axis=1)
    cut = len(values) // 4
    means = ordered[:, cut : len(values) - cut].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def thin(x: Array, y: Array, most: int = 2000) -> tuple[Array, Array]:
    """At most so many points: what a screen can show."""
    if len(x) <= most:
        return x, y
    chosen = np.unique(np.linspace(0, len(x) - 1, most).astype(int))
    return x[chosen], y[chosen]


def published(game: str, protocol: str) -> list[Published]:
    """Curves of the same game made under a comparable protocol; training and evaluation are named in the label."""
    allowed = COMPARABLE.get(protocol, ())
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in _curves().get(_key(game), ()):
        if row["protocol"] in allowed:
            key = (row["algorithm"], row["source"], row["protocol"])
            found.setdefault(key, []).append((float(row["frames"]), float(row["mean_return"])))
    labels = _source_labels()
    return [
        Published(
            f"{algorithm} · {labels.get(source, source)} · {'evaluation' if kind.endswith('eval') else 'training'}",
            np.array([frame for frame, _ in points]),
            np.array([score for _, score in points]),
        )
        for (algorithm, source, kind), points in sorted(found.items())
    ]


def _key(game: str) -> str:
    """``space_invaders`` and ``SpaceInvaders`` alike."""
    return game.replace("_", "").casefold()


@cache
def _curves() -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = {}
    for row in _rows("curves.csv"):
        found.setdefault(_key(row["game"]), []).append(row)
    return found


@cache
def _source_labels() -> dict[str, str]:
    return {row["source"]: row["label"] for row in _rows("sources.csv")}


def _rows(name: str) -> list[dict[str, str]]:
    text = files("retrograd").joinpath("reference", name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))
