"""Statistics of scores: equal to rliable's, to hand-worked numbers, and honest in simulation (REQ EXP-2)."""

from __future__ import annotations

from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from retrograd.core import statistics
from retrograd.core.errors import UsageError

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "statistics.npz")
EXAMPLES = ("counting", "small", "skewed", "ties")
AGGREGATES = (statistics.mean, statistics.median, statistics.iqm, statistics.optimality_gap)


def aggregates(scores: np.ndarray) -> np.ndarray:
    return np.stack([statistic(scores) for statistic in AGGREGATES], axis=-1)


def assert_interval(interval: statistics.Interval, expected: np.ndarray) -> None:
    np.testing.assert_allclose(interval.low, expected[0].squeeze(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(interval.high, expected[1].squeeze(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("example", EXAMPLES)
def test_aggregates_and_their_intervals_equal_rliables(example: str) -> None:
    case = {key: GOLDEN[f"{example}/{key}"] for key in ("ours", "aggregates", "runs_rows", "tasks_rows")}
    scores = case["ours"]
    np.testing.assert_allclose(aggregates(scores), case["aggregates"], rtol=0, atol=1e-12)
    by_runs = aggregates(scores[case["runs_rows"], np.arange(scores.shape[1])])
    interval = statistics.percentile_interval(case["aggregates"], by_runs, 0.95)
    assert_interval(interval, GOLDEN[f"{example}/runs_interval"])
    by_tasks = aggregates(scores[case["tasks_rows"], GOLDEN[f"{example}/tasks_columns"]])
    interval = statistics.percentile_interval(case["aggregates"], by_tasks, 0.95)
    assert_interval(interval, GOLDEN[f"{example}/tasks_interval"])


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("name", ["profile", "task_profile"])
def test_profiles_equal_rliables(example: str, name: str) -> None:
    function = statistics.performance_profile if name == "profile" else statistics.task_profile
    profile = partial(function, thresholds=GOLDEN["thresholds"])
    scores = GOLDEN[f"{example}/ours"]
    np.testing.assert_allclose(profile(scores), GOLDEN[f"{example}/{name}"], rtol=0, atol=1e-12)
    drawn = profile(scores[GOLDEN[f"{example}/{name}_rows"], np.arange(scores.shape[1])])
    interval = statistics.percentile_interval(profile(scores), drawn, 0.95)
    assert_interval(interval, GOLDEN[f"{example}/{name}_interval"])


@pytest.mark.parametrize("example", EXAMPLES)
def test_probability_of_improvement_equals_rliables(example: str) -> None:
    ours, theirs = GOLDEN[f"{example}/ours"], GOLDEN[f"{example}/theirs"]
    point = statistics.probability_of_improvement(ours, theirs)
    np.testing.assert_allclose(point, GOLDEN[f"{example}/improvement"], rtol=0, atol=1e-12)
    tasks = np.arange(ours.shape[1])
    drawn = statistics.probability_of_improvement(
        ours[GOLDEN[f"{example}/improvement_rows"], tasks], theirs[GOLDEN[f"{example}/improvement_other_rows"], tasks]
    )
    interval = statistics.percentile_interval(point, drawn, 0.95)
    assert_interval(interval, GOLDEN[f"{example}/improvement_interval"])


def test_aggregates_of_hand_worked_scores() -> None:
    assert statistics.iqm(np.arange(100.0).reshape(10, 10)) == 49.5
    scores = np.array([[0.0, 1.0, 10.0], [0.5, 3.0, 30.0]])
    assert statistics.mean(scores) == pytest.approx((0.25 + 2 + 20) / 3)
    assert statistics.median(scores) == 2.0
    assert statistics.iqm(scores) == pytest.approx((0.5 + 1 + 3 + 10) / 4)  # of six, one is cut at each end
    assert statistics.optimality_gap(scores) == pytest.approx(1 - (0 + 0.5 + 4) / 6)
    assert statistics.optimality_gap(scores, target=2.0) == pytest.approx(2 - (0 + 0.5 + 1 + 2 * 3) / 6)
    np.testing.assert_allclose(statistics.performance_profile(scores, [0.0, 1.0]), [5 / 6, 3 / 6])


def test_a_run_that_does_not_exist_changes_nothing() -> None:
    ragged = statistics.score_matrix({"pong": [1.0, 2.0, 9.0, 4.0], "qbert": [3.0, 8.0]})
    assert ragged.shape == (4, 2)
    assert statistics.iqm(ragged) == pytest.approx((2 + 3 + 4 + 8) / 4)
    assert statistics.mean(ragged) == pytest.approx((4 + 5.5) / 2)
    assert statistics.optimality_gap(ragged, target=5.0) == pytest.approx(5 - (1 + 2 + 5 + 4 + 3 + 5) / 6)
    np.testing.assert_allclose(statistics.performance_profile(ragged, [2.0]), [4 / 6])
    better = statistics.probability_of_improvement(ragged, np.array([[2.0, 5.0]]))
    assert better == pytest.approx(((0.5 + 2) / 4 + 1 / 2) / 2)


def test_resamples_stay_within_their_task_and_keep_its_number_of_runs() -> None:
    scores = np.array([[np.nan, 10.0, 20.0], [1.0, np.nan, 21.0], [2.0, 12.0, 22.0], [np.nan, 13.0, 23.0]])
    rows, columns = statistics.draw_resamples(scores, 500, np.random.default_rng(0))
    drawn = scores[rows, columns]
    assert (np.isfinite(drawn).sum(axis=1) == [2, 3, 4]).all()
    for task in range(3):
        present = scores[np.isfinite(scores[:, task]), task]
        values, counts = np.unique(drawn[..., task][np.isfinite(drawn[..., task])], return_counts=True)
        np.testing.assert_array_equal(values, np.sort(present))  # every run, and nothing of another task
        np.testing.assert_allclose(counts / counts.sum(), 1 / len(present), atol=0.06)


def test_the_average_of_all_possible_resamples_is_what_drawing_them_gives() -> None:
    scores = np.array([[0.0, 5.0], [1.0, 7.0], [4.0, 6.0]])
    every = np.array(
        [[scores[list(a), 0], scores[list(b), 1]] for a, b in product(product(range(3), repeat=3), repeat=2)]
    )
    exact = np.percentile(statistics.iqm(every.swapaxes(1, 2)), (2.5, 97.5))
    drawn = statistics.bootstrap_interval(scores, statistics.iqm, np.random.default_rng(1), resamples=40_000)
    np.testing.assert_allclose([drawn.low, drawn.high], exact, atol=0.05)


def test_the_same_generator_gives_the_same_interval_whatever_the_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(0).normal(size=(5, 3))
    first, again, other = (
        statistics.bootstrap_interval(scores, statistics.iqm, np.random.default_rng(seed), resamples=200)
        for seed in (1, 1, 2)
    )
    assert (first.low, first.high) == (again.low, again.high)
    assert (first.low, first.high) != (other.low, other.high)
    monkeypatch.setattr(statistics, "CHUNK_NUMBERS", 15 * 7)  # 7 resamples at a time, and 4 at the end
    chunked = statistics.bootstrap_interval(scores, statistics.iqm, np.random.default_rng(1), resamples=200)
    assert (first.low, first.high) == (chunked.low, chunked.high)


def coverage(task_bootstrap: bool) -> float:
    """Share of 95 % intervals that hold the truth: 10 runs of 10 tasks of unequal level and noise, many times over."""
    rng = np.random.default_rng(7)
    level, noise = np.linspace(0.0, 3.0, 10), np.linspace(0.2, 1.0, 10)
    many = level + noise * rng.standard_normal((20_000, 10, 10))
    truth = float(statistics.iqm(many).mean())
    hits = 0
    for scores in many[:500]:
        interval = statistics.bootstrap_interval(scores, statistics.iqm, rng, resamples=400, tasks=task_bootstrap)
        hits += bool(interval.low <= truth <= interval.high)
    return hits / 500


def test_intervals_cover_the_truth_as_often_as_they_say() -> None:
    assert 0.90 <= coverage(task_bootstrap=False) <= 0.97


def test_resampling_tasks_as_well_misses_the_coverage() -> None:
    """The mutant: an interval for other tasks is far too wide for these."""
    assert coverage(task_bootstrap=True) > 0.97


def test_improvement_is_one_for_disjoint_scores_and_a_half_against_itself() -> None:
    scores = np.random.default_rng(0).normal(size=(5, 4))
    assert statistics.probability_of_improvement(scores, scores) == 0.5
    interval = statistics.improvement_interval(scores + 100.0, scores, np.random.default_rng(0), resamples=50)
    assert (interval.point, interval.low, interval.high) == (1.0, 1.0, 1.0)
    interval = statistics.improvement_interval(scores, scores, np.random.default_rng(0), resamples=500)
    assert interval.low < 0.5 < interval.high


def test_a_permutation_test_is_wrong_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    p_values = [
        statistics.permutation_p_value(rng.normal(size=(5, 2)), rng.normal(size=(5, 2)), rng, permutations=199)
        for _ in range(1000)
    ]
    assert 0.03 <= np.mean(np.array(p_values) <= 0.05) <= 0.07
    assert statistics.permutation_p_value(rng.normal(3, 1, (5, 2)), rng.normal(0, 1, (5, 2)), rng) < 0.01


def test_spread_and_tail_of_hand_worked_numbers() -> None:
    spread = statistics.spread([4.0, 1.0, 2.0, 3.0, 5.0])
    assert (spread.q1, spread.median, spread.q3, spread.iqr, spread.count) == (2.0, 3.0, 4.0, 2.0, 5)
    assert statistics.cvar([5.0, 1.0, 3.0, 2.0, 4.0], 0.25) == 1.5
    assert statistics.cvar([5.0, 1.0, 3.0, 2.0, 4.0], 0.25, tail="upper") == 4.5
    assert statistics.cvar([5.0, 1.0], 1.0) == 3.0


def test_human_normalized_score() -> None:
    np.testing.assert_allclose(
        statistics.human_normalized(np.array([-20.7, 14.6, 0.0]), -20.7, 14.6), [0, 1, 20.7 / 35.3]
    )
    with pytest.raises(UsageError, match="must differ"):
        statistics.human_normalized(1.0, 2.0, 2.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: statistics.score_matrix({"pong": [1.0], "qbert": []}),
        lambda: statistics.score_matrix({"pong": [1.0, np.inf]}),
        lambda: statistics.iqm(np.array([1.0, 2.0])),
        lambda: statistics.iqm(np.array([[np.nan]])),
        lambda: statistics.spread([]),
        lambda: statistics.cvar([1.0], 0.0),
        lambda: statistics.cvar([1.0], tail="left"),
        lambda: statistics.probability_of_improvement(np.ones((2, 2)), np.ones((2, 3))),
        lambda: statistics.bootstrap_interval(np.ones((2, 2)), statistics.iqm, np.random.default_rng(0), resamples=0),
        lambda: statistics.bootstrap_interval(
            np.array([[1.0, 2.0], [1.0, np.nan]]), statistics.iqm, np.random.default_rng(0), tasks=True
        ),
    ],
)
def test_what_has_no_meaning_is_refused(call) -> None:
    with pytest.raises(UsageError):
        call()
