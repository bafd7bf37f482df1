"""Numbers behind the charts: smoothing, seeds on one grid, intervals, published curves."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd

Array = np.ndarray[Any, np.dtype[np.float64]]

# chance that the emulator repeats an action -> protocols of published curves that were made the same way
COMPARABLE = {0.0: ("no_sticky_eval", "no_sticky_train"), 0.25: ("sticky_eval", "sticky_train")}
ENOUGH_RUNS = 3  # for an interval
RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Published:
    """A published curve of the same game and kind of protocol."""

    label: str
    frames: Array
    score: Array


@dataclass(frozen=True, slots=True)
class Band:
    """Several curves in one: middle, low and high [P], and what they are."""

    middle: Array
    low: Array
    high: Array
    meaning: str


def smooth(values: Array, weight: float) -> Array:
    """Exponential mean that forgets nothing of the first value's share; 0 leaves the values as they are."""
    if weight <= 0 or len(values) < 2:
        return values
    finite = pd.Series(np.where(np.isfinite(values), values, np.nan))
    return np.asarray(finite.ewm(alpha=1 - weight, adjust=True, ignore_na=True).mean())


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


def interval(values: Array, seed: int = 0, draws: int = RESAMPLES) -> tuple[float, float]:
    """95 % bootstrap interval of the interquartile mean."""
    low, high = _bootstrap(np.asarray(values, float)[:, None], seed, draws)
    return float(low[0]), float(high[0])


def middle_and_band(values: Array) -> Band:
    """Curves [R, P] in one: with runs enough the interquartile mean and its 95 % interval, else mean and range."""
    count = len(values)
    if count < ENOUGH_RUNS:
        return Band(values.mean(0), values.min(0), values.max(0), "mean and range")
    cut = count // 4
    low, high = _bootstrap(values, 0, max(200, min(1_000, 2_000_000 // values.size)))
    return Band(np.sort(values, axis=0)[cut : count - cut].mean(0), low, high, "IQM with 95 % interval")


def _bootstrap(values: Array, seed: int, draws: int) -> tuple[Array, Array]:
    """Percentiles of the interquartile mean of resampled runs: [R, P] to two times [P]."""
    return _bootstrap_once(np.ascontiguousarray(values, float).tobytes(), len(values), seed, draws)


@lru_cache(maxsize=256)  # a page that draws itself anew mostly shows the same runs
def _bootstrap_once(data: bytes, count: int, seed: int, draws: int) -> tuple[Array, Array]:
    values = np.frombuffer(data).reshape(count, -1)
    cut = count // 4
    # drawn as retrograd.core.statistics draws, so that both give the same interval
    rows = np.random.default_rng(seed).integers(0, np.array([count]), size=(draws, count, 1))[:, :, 0]
    means = np.sort(values[rows], axis=1)[:, cut : count - cut].mean(axis=1)  # [draws, P]
    low, high = np.percentile(means, (2.5, 97.5), axis=0)
    return low, high


def thin(x: Array, y: Array, most: int = 2000) -> tuple[Array, Array]:
    """At most so many points: what a screen can show."""
    if len(x) <= most:
        return x, y
    chosen = np.unique(np.linspace(0, len(x) - 1, most).astype(int))
    return x[chosen], y[chosen]


def comparable_protocols(repeat_action_probability: float | None, flicker_probability: float) -> tuple[str, ...]:
    """Protocols of published curves for a run's own values, whatever its protocol is called; nobody blanked frames."""
    if repeat_action_probability is None or flicker_probability:
        return ()
    return COMPARABLE.get(repeat_action_probability, ())


def published(game: str, protocols: Sequence[str]) -> list[Published]:
    """Curves of the same game made under one of the protocols; training and evaluation are named in the label."""
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for row in _curves().get(_key(game), ()):
        if row["protocol"] in protocols:
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
