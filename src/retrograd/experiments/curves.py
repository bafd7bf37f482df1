"""Curves of several seeds on one grid of frames, and one center line with a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retrograd.core import statistics
from retrograd.core.types import Array

LONGEST_GRID = 200  # points; more cannot be told apart in print
ENOUGH_RUNS = 3  # below this an interval over runs means nothing


@dataclass(frozen=True)
class Band:
    """A center line over frames and what is shaded round it."""

    frames: Array  # [G]
    center: Array  # [G]
    low: Array  # [G]
    high: Array  # [G]
    meaning: str


def common_grid(curves: Sequence[tuple[Array, Array]]) -> Array:
    """Frames at which any curve has a point, from where all have begun to where the first ends."""
    start = max(frames[0] for frames, _ in curves)
    end = min(frames[-1] for frames, _ in curves)  # no seed is extended beyond its end
    grid: Array = np.unique(np.concatenate([frames for frames, _ in curves]))
    grid = grid[(grid >= start) & (grid <= end)]
    if len(grid) > LONGEST_GRID:
        return np.linspace(start, end, LONGEST_GRID)
    return grid


def on_grid(curves: Sequence[tuple[Array, Array]], grid: Array) -> Array:
    """[S, G] of curves between their points."""
    return np.stack([np.interp(grid, frames, values) for frames, values in curves])


def band_over_seeds(
    curves: Sequence[tuple[Array, Array]], rng: np.random.Generator, *, confidence: float = 0.95
) -> Band | None:
    """Interquartile mean and bootstrap interval of three seeds or more; mean and range of two; a single line else.

    A resample draws whole curves, for the points of one run hang together. None where the seeds share no frames.
    """
    curves = [curve for curve in curves if len(curve[0])]
    grid = common_grid(curves) if curves else np.empty(0)
    if not len(grid):
        return None
    values = on_grid(curves, grid)
    if len(values) == 1:
        return Band(grid, values[0], values[0], values[0], "")
    if len(values) < ENOUGH_RUNS:
        return Band(grid, values.mean(axis=0), values.min(axis=0), values.max(axis=0), "mean, lowest to highest")
    rows = rng.integers(0, len(values), size=(statistics.RESAMPLES, len(values)))
    columns = (values[:, [point]] for point in range(len(grid)))  # [S, 1] each: all at once would fill the memory
    drawn = np.stack([statistics.iqm(column[rows]) for column in columns], axis=-1)  # [R, G]
    interval = statistics.percentile_interval(statistics.iqm(values.T[..., None]), drawn, confidence)
    return Band(grid, interval.point, interval.low, interval.high, f"IQM, {confidence:.0%} interval")
