"""Scores of several runs on several tasks, summed up so that they can be believed.

Papers: Agarwal et al. 2021, arXiv:2108.13264 (interquartile mean, stratified bootstrap, profiles, probability of
improvement); Mnih et al. 2015 (human-normalized score). The definitions are those of the library ``rliable``.
Differences: the random generator is handed in, many resamples are computed at once, and tasks may have unequal
numbers of runs.

Shapes:  S runs (seeds) · K tasks (games) · R resamples · H thresholds
A score matrix is [S, K]; NaN stands for a run that does not exist, so that tasks may have unequal numbers of runs.
Statistics take [..., S, K] and reduce the last two dimensions, so that one call serves one matrix or many resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.types import Array

Statistic = Callable[[Array], Array]  # [..., S, K] → [...] or [..., H]

RESAMPLES = 2_000  # steady to about the second digit of the interval; papers use 50,000 for final tables
CHUNK_NUMBERS = 2_000_000  # resampled scores held at once: 16 MB


@dataclass(frozen=True, slots=True)
class Interval:
    """A point estimate with its bootstrap interval: plain numbers, or [H] for a profile."""

    point: Array
    low: Array
    high: Array
    confidence: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and quartiles of one sample, with its size."""

    q1: float
    median: float
    q3: float
    count: int

    @property
    def iqr(self) -> float:
        return self.q3 - self.q1


def score_matrix(scores: Mapping[str, Sequence[float]] | Sequence[Sequence[float]]) -> Array:
    """[S, K] of one list of runs for each task; shorter lists are filled with NaN."""
    columns = list(scores.values()) if isinstance(scores, Mapping) else list(scores)
    if not columns or not all(len(column) for column in columns):
        raise UsageError("a score matrix needs at least one run of each task")
    matrix = np.full((max(len(column) for column in columns), len(columns)), np.nan)
    for place, column in enumerate(columns):
        matrix[: len(column), place] = column
    present = [value for column in columns for value in column]
    if not np.isfinite(present).all():
        raise UsageError("a score is not a finite number: leave out runs that gave none")
    return matrix


def human_normalized(score: Array | float, random: float, human: float) -> Array | float:
    """0 for a random player, 1 for a human."""
    if human == random:
        raise UsageError(f"baseline is ({random}, {human}): the human score must differ from the random score")
    return (score - random) / (human - random)


def spread(values: Sequence[float] | Array) -> Spread:
    """Median and quartiles, by linear interpolation between the ordered values."""
    sample = _sample(values)
    q1, middle, q3 = np.quantile(sample, (0.25, 0.5, 0.75))
    return Spread(float(q1), float(middle), float(q3), len(sample))


def mean(scores: Array) -> Array:
    """Mean over tasks of the mean over runs; one huge score carries it away, so never report it alone."""
    return np.asarray(_task_means(scores).mean(axis=-1))


def median(scores: Array) -> Array:
    """Median over tasks of the mean over runs; blind to what happens on nearly half of the tasks."""
    return np.asarray(np.median(_task_means(scores), axis=-1))


def iqm(scores: Array) -> Array:
    """Interquartile mean: of all runs on all tasks together, without the lowest and the highest quarter."""
    flat = _flat(scores)
    count = _run_count(flat)
    cut = int(0.25 * count)
    ordered = np.sort(flat, axis=-1)  # NaN comes last
    return np.asarray(ordered[..., cut : count - cut].mean(axis=-1))


def optimality_gap(scores: Array, target: float = 1.0) -> Array:
    """How far runs stay below the target on average; what exceeds it earns nothing. Lower is better."""
    return np.asarray(target - np.nanmean(np.minimum(_flat(scores), target), axis=-1))


def performance_profile(scores: Array, thresholds: Sequence[float] | Array) -> Array:
    """[..., H] share of runs above each threshold."""
    flat = _flat(scores)
    count = _run_count(flat)
    above = [np.count_nonzero(flat > threshold, axis=-1) / count for threshold in np.asarray(thresholds)]
    return np.stack(above, axis=-1)


def task_profile(scores: Array, thresholds: Sequence[float] | Array) -> Array:
    """[..., H] share of tasks whose mean over runs is above each threshold."""
    means = _task_means(scores)
    return np.stack([(means > threshold).mean(axis=-1) for threshold in np.asarray(thresholds)], axis=-1)


def probability_of_improvement(ours: Array, theirs: Array) -> Array:
    """Chance that a run of ours beats a run of theirs on a task drawn at random; ties count one half."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if ours.shape[-1] != theirs.shape[-1]:
        raise UsageError(f"{ours.shape[-1]} tasks against {theirs.shape[-1]}: both sides must have played the same")
    first, second = ours[..., :, None, :], theirs[..., None, :, :]  # [..., S, 1, K] and [..., 1, S', K]
    wins = np.count_nonzero(first > second, axis=(-3, -2)) + 0.5 * np.count_nonzero(first == second, axis=(-3, -2))
    pairs = np.isfinite(ours).sum(axis=-2) * np.isfinite(theirs).sum(axis=-2)  # [..., K]
    return np.asarray((wins / pairs).mean(axis=-1))


def cvar(values: Sequence[float] | Array, share: float = 0.05, *, tail: str = "lower") -> float:
    """Conditional value at risk: mean of the values at or beyond the quantile ``share`` of one tail."""
    sample = _sample(values)
    if not 0.0 < share <= 1.0 or tail not in ("lower", "upper"):
        raise UsageError(f"share is {share} and tail {tail!r}: must be above 0 up to 1, and lower or upper")
    if tail == "lower":
        return float(sample[sample <= np.quantile(sample, share)].mean())
    return float(sample[sample >= np.quantile(sample, 1.0 - share)].mean())


def draw_resamples(
    scores: Array, resamples: int, rng: np.random.Generator, *, tasks: bool = False
) -> tuple[Array, Array]:
    """Rows [R, S, K] and columns [1 or R, 1, K] of ``resamples`` score matrices drawn with replacement.

    Runs are drawn within each task (stratified). With ``tasks`` the tasks are drawn as well, which answers how
    much the result hangs on the choice of tasks.
    """
    matrix = _matrix(scores)
    runs, number = matrix.shape
    present = np.isfinite(matrix).sum(axis=0)  # [K]
    rows = rng.integers(0, present, size=(resamples, runs, number))
    if (present < runs).any():
        order = np.argsort(np.isnan(matrix), axis=0, kind="stable")  # [S, K] existing runs first
        existing = np.arange(runs)[:, None] < present  # a resample keeps each task's number of runs
        rows = np.where(existing, order[rows, np.arange(number)], order)
    columns = np.arange(number)[None, None, :]
    if tasks:
        if (present != runs).any():
            raise UsageError("tasks can be resampled only where each has the same number of runs")
        columns = rng.integers(0, number, size=(resamples, 1, number))
    return rows, columns


def bootstrap_interval(
    scores: Array,
    statistic: Statistic,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    tasks: bool = False,
) -> Interval:
    """Percentile interval of a statistic by the stratified bootstrap; with three runs it is too narrow, so say S."""
    matrix = _matrix(scores)

    def draw(count: int) -> Array:
        rows, columns = draw_resamples(matrix, count, rng, tasks=tasks)
        return statistic(matrix[rows, columns])

    return _interval(statistic(matrix), draw, matrix.size, resamples, confidence)


def improvement_interval(
    ours: Array,
    theirs: Array,
    rng: np.random.Generator,
    *,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
) -> Interval:
    """Probability of improvement with its interval; both sides are resampled independently."""
    first, second = _matrix(ours), _matrix(theirs)

    def draw(count: int) -> Array:
        left, right = draw_resamples(first, count, rng), draw_resamples(second, count, rng)
        return probability_of_improvement(first[left], second[right])

    point = probability_of_improvement(first, second)
    return _interval(point, draw, first.size * second.shape[0], resamples, confidence)


def percentile_interval(point: Array, drawn: Array, confidence: float) -> Interval:
    """The interval between two percentiles of the statistic's values [R, ...] on the resamples."""
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(drawn, (tail, 100.0 - tail), axis=0)
    return Interval(np.asarray(point), np.asarray(low), np.asarray(high), confidence)


def permutation_p_value(ours: Array, theirs: Array, rng: np.random.Generator, *, permutations: int = 2_000) -> float:
    """Chance of a difference of means at least this large, were the labels of the runs within each task arbitrary."""
    first, second = _matrix(ours), _matrix(theirs)
    if first.shape[1] != second.shape[1] or np.isnan(first).any() or np.isnan(second).any():
        raise UsageError("a permutation test needs the same tasks on both sides and no run missing")
    pooled = np.concatenate([first, second])  # [S + S', K]
    observed = abs(float(first.mean() - second.mean()))
    shuffled = rng.permuted(np.broadcast_to(pooled, (permutations, *pooled.shape)), axis=1)
    runs = len(first)
    differences = np.abs(shuffled[:, :runs].mean(axis=(1, 2)) - shuffled[:, runs:].mean(axis=(1, 2)))
    at_least = np.count_nonzero(differences >= observed - 1e-12 * max(1.0, observed))
    return float((1 + at_least) / (1 + permutations))  # the observed labels are one of the permutations


def _interval(point: Array, draw: Callable[[int], Array], numbers: int, resamples: int, confidence: float) -> Interval:
    if resamples < 1 or not 0.0 < confidence < 1.0:
        raise UsageError(f"resamples is {resamples} and confidence {confidence}: at least 1, and between 0 and 1")
    chunk = max(1, CHUNK_NUMBERS // max(1, numbers))
    sizes = [chunk] * (resamples // chunk) + [resamples % chunk] * bool(resamples % chunk)
    return percentile_interval(point, np.concatenate([draw(size) for size in sizes]), confidence)


def _sample(values: Sequence[float] | Array) -> Array:
    sample = np.asarray(values, np.float64)
    if sample.ndim != 1 or not len(sample) or not np.isfinite(sample).all():
        raise UsageError(f"need at least one finite number, got {values!r}")
    return sample


def _matrix(scores: Array) -> Array:
    matrix = np.asarray(scores, np.float64)
    if matrix.ndim != 2 or not matrix.size or not np.isfinite(matrix).any(axis=0).all():
        raise UsageError(f"scores have shape {matrix.shape}: must be [runs, tasks] with at least one run of each task")
    return matrix


def _flat(scores: Array) -> Array:
    scores = np.asarray(scores, np.float64)
    if scores.ndim < 2:
        raise UsageError(f"scores have shape {scores.shape}: must be [..., runs, tasks]")
    return scores.reshape(*scores.shape[:-2], -1)


def _run_count(flat: Array) -> int:
    """Runs in each matrix: equal for all, for a resample has as many runs of each task as the original."""
    first = flat.reshape(-1, flat.shape[-1])[0]
    count = int(np.count_nonzero(~np.isnan(first)))
    if not count:
        raise UsageError("there is not one score")
    return count


def _task_means(scores: Array) -> Array:
    scores = np.asarray(scores, np.float64)
    if scores.ndim < 2:
        raise UsageError(f"scores have shape {scores.shape}: must be [..., runs, tasks]")
    return np.asarray(np.nanmean(scores, axis=-2) if np.isnan(scores).any() else scores.mean(axis=-2))
