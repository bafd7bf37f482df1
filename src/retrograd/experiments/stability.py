"""How steadily runs learned: dispersion and risk, along a run and across runs.

Paper: Chan et al. 2020, arXiv:1912.05663. Along one run the *changes* from point to point are looked at, so that
steady progress is not taken for noise:
    dispersion over time   IQR of Δy/Δt in sliding windows, averaged
    short-term risk        CVaR of the worst 5 % of Δy/Δt
    long-term risk         CVaR of the deepest 5 % of drawdowns (highest return so far − y)
Across runs of one config:
    dispersion over runs   IQR across runs at each frame, of curves without their fast wiggles, averaged
    risk over runs         CVaR of the worst runs' final returns
Differences from the paper: the low-pass filter works on frequencies (the paper filters forwards and backwards, which
multiplies them by the same factors), and Δt is in millions of frames. ``scale`` turns returns into shares of a curve's
range, so that games can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from retrograd.core import statistics
from retrograd.core.errors import UsageError
from retrograd.core.types import Array

WINDOW_POINTS = 10
TAIL = 0.05
FILTER_ORDER = 8
MILLION = 1_000_000


def dispersion_over_time(frames: Array, returns: Array, *, window_points: int = WINDOW_POINTS) -> float:
    """Mean over sliding windows of the IQR of changes a million frames; one window where the curve is shorter."""
    changes = changes_per_million(frames, returns)
    if window_points < 2:
        raise UsageError(f"window_points is {window_points}: must be at least 2")
    windows = np.lib.stride_tricks.sliding_window_view(changes, min(window_points, len(changes)))
    q1, q3 = np.quantile(windows, (0.25, 0.75), axis=1)
    return float(np.mean(q3 - q1))


def short_term_risk(frames: Array, returns: Array, *, share: float = TAIL) -> float:
    """The worst changes a million frames on average: how far a curve falls from one point to the next."""
    return statistics.cvar(changes_per_million(frames, returns), share)


def drawdown(returns: Array) -> Array:
    """How far each point lies below the highest before it."""
    returns = np.asarray(returns, np.float64)
    return np.asarray(np.maximum.accumulate(returns) - returns)


def long_term_risk(returns: Array, *, share: float = TAIL) -> float:
    """The deepest drawdowns on average: how much of what was learned gets lost."""
    return statistics.cvar(drawdown(returns), share, tail="upper")


def dispersion_over_runs(curves: Array, *, cutoff: float = 0.2, order: int = FILTER_ORDER) -> float:
    """Mean over the grid of the IQR across runs [S, G], after slow changes were let through alone."""
    curves = np.asarray(curves, np.float64)
    if curves.ndim != 2 or len(curves) < 2:
        raise UsageError(f"curves have shape {curves.shape}: must be [runs, points] of at least two runs")
    q1, q3 = np.quantile(low_pass(curves, cutoff=cutoff, order=order), (0.25, 0.75), axis=0)
    return float(np.mean(q3 - q1))


def risk_over_runs(finals: Sequence[float] | Array, *, share: float = TAIL) -> float:
    """The final return of the worst runs on average."""
    return statistics.cvar(finals, share)


def scale(returns: Array) -> float:
    """Range of a curve: its 95th percentile less its start; 1 for a curve that never rose."""
    returns = np.asarray(returns, np.float64)
    rise = float(np.quantile(returns, 0.95) - returns[0])
    return rise if rise > 0 else 1.0


def changes_per_million(frames: Array, returns: Array) -> Array:
    """Δy/Δt between neighboring points; points of one frame (several games ended at once) count as their mean."""
    frames, returns = np.asarray(frames, np.float64), np.asarray(returns, np.float64)
    places, owner, counts = np.unique(frames, return_inverse=True, return_counts=True)
    if len(places) < 2:
        raise UsageError("a curve needs at least two points for its changes")
    values = np.bincount(owner, weights=returns) / counts
    return np.asarray(np.diff(values) / np.diff(places) * MILLION)


def low_pass(curves: Array, *, cutoff: float, order: int = FILTER_ORDER) -> Array:
    """Butterworth filter applied forwards and backwards along the last axis; cutoff as share of the Nyquist rate."""
    curves = np.asarray(curves, np.float64)
    if not 0.0 < cutoff < 1.0 or order < 1:
        raise UsageError(f"cutoff is {cutoff} and order {order}: between 0 and 1, and at least 1")
    points = curves.shape[-1]
    if points < 3:
        return curves
    # turned over at both ends, so that the filter sees no step where the curve begins and stops
    head = 2 * curves[..., :1] - curves[..., 1:][..., ::-1]
    tail = 2 * curves[..., -1:] - curves[..., :-1][..., ::-1]
    padded = np.concatenate([head, curves, tail], axis=-1)
    slope = np.linspace(0.0, 1.0, padded.shape[-1])
    trend = padded[..., :1] + (padded[..., -1:] - padded[..., :1]) * slope  # what is left is periodic
    rate = np.fft.rfftfreq(padded.shape[-1]) * 2.0  # 1 at the Nyquist rate
    with np.errstate(over="ignore"):
        warped = np.tan(np.pi * np.minimum(rate, 1 - 1e-9) / 2) / np.tan(np.pi * cutoff / 2)
        gain = 1.0 / (1.0 + warped ** (2 * order))  # |H|² of one pass: two passes, once each way
    smooth = np.fft.irfft(np.fft.rfft(padded - trend, axis=-1) * gain, n=padded.shape[-1], axis=-1) + trend
    return np.asarray(smooth[..., points - 1 : 2 * points - 1])
