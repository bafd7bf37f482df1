"""How quickly a run learned: area under its curve, and frames until it reached a score.

A run that never reached the score is *censored*: it took more frames than were looked at, nobody knows how many.
Leaving such runs out would flatter; ``median_frames_to_threshold`` counts them as Kaplan and Meier (1958) do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.types import Array


@dataclass(frozen=True, slots=True)
class Reached:
    """Frames until the score was reached, or all the frames there were."""

    frames: float
    reached: bool


def area_under_curve(
    frames: Array, returns: Array, *, first: float | None = None, last: float | None = None, scale: str = "linear"
) -> float:
    """Mean height of the curve between two frames, by the trapezoid rule: a return, whatever the budget.

    ``scale="log"`` gives each factor of frames the same weight, so that the beginning counts. Runs are compared over
    the same frames: a curve is not extended beyond its points.
    """
    frames, returns = _curve(frames, returns)
    start = float(frames[0]) if first is None else float(first)
    end = float(frames[-1]) if last is None else float(last)
    if not frames[0] <= start <= end <= frames[-1]:
        raise UsageError(
            f"the curve runs from {frames[0]:.0f} to {frames[-1]:.0f} frames, not {start:.0f} to {end:.0f}"
        )
    if scale not in ("linear", "log") or (scale == "log" and start <= 0):
        raise UsageError(f"scale is {scale!r} from frame {start:.0f}: must be linear, or log from a frame above 0")
    if start == end:
        return float(np.interp(start, frames, returns))
    inside = frames[(frames > start) & (frames < end)]
    grid = np.concatenate([[start], inside, [end]])
    values = np.interp(grid, frames, returns)
    places = np.log(grid) if scale == "log" else grid
    return float(np.trapezoid(values, places) / (places[-1] - places[0]))


def frames_to_threshold(frames: Array, returns: Array, threshold: float) -> Reached:
    """The first point of the curve at or above the threshold; smooth a noisy curve before."""
    frames, returns = _curve(frames, returns)
    above = np.flatnonzero(returns >= threshold)
    if len(above):
        return Reached(float(frames[above[0]]), True)
    return Reached(float(frames[-1]), False)


def median_frames_to_threshold(runs: Sequence[Reached]) -> float | None:
    """Kaplan-Meier median: frames by which half of the runs had reached the score; None where fewer than half did."""
    if not runs:
        raise UsageError("need at least one run")
    still_waiting = 1.0
    for frames in sorted({run.frames for run in runs if run.reached}):
        at_risk = sum(run.frames >= frames for run in runs)
        arrived = sum(run.reached and run.frames == frames for run in runs)
        still_waiting *= 1.0 - arrived / at_risk
        if still_waiting <= 0.5 + 1e-12:
            return frames
    return None


def _curve(frames: Array, returns: Array) -> tuple[Array, Array]:
    frames, returns = np.asarray(frames, np.float64), np.asarray(returns, np.float64)
    if frames.ndim != 1 or frames.shape != returns.shape or not len(frames):
        raise UsageError(f"a curve needs as many frames as returns, at least one; got {frames.shape}, {returns.shape}")
    if (np.diff(frames) < 0).any() or not np.isfinite(returns).all():
        raise UsageError("the frames of a curve must not fall, and its returns must be finite")
    return frames, returns
