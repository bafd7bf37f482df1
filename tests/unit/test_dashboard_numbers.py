"""The numbers behind the dashboard's charts: its own code, the package's own definitions."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pandas", reason="the dashboard extra is not installed")

from retrograd.core.statistics import RESAMPLES, bootstrap_interval, iqm
from retrograd.dashboard import series
from retrograd.dashboard.settings import LONGEST_LABEL, SCORING_KEYS, flatten, label_runs
from retrograd.experiments import runs as run_logs


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 10, 50])
def test_the_interquartile_mean_is_that_of_the_statistics(count):
    """The dashboard imports no other room, so it has its own; REQ EXP-2 holds for both."""
    values = np.random.default_rng(count).normal(100, 30, count)
    assert series.interquartile_mean(values) == pytest.approx(float(iqm(values[:, None])), rel=1e-12)


@pytest.mark.parametrize("count", [3, 4, 5, 10, 50])
def test_the_interval_is_that_of_the_statistics(count):
    values = np.random.default_rng(count).normal(100, 30, count)
    expected = bootstrap_interval(values[:, None], iqm, np.random.default_rng(0))
    assert series.RESAMPLES == RESAMPLES
    assert series.interval(values) == pytest.approx((float(expected.low), float(expected.high)), rel=1e-12)
    assert series.interval(values)[0] < series.interquartile_mean(values) < series.interval(values)[1]


def test_the_band_of_a_curve_is_the_interval_at_each_point():
    values = np.random.default_rng(1).normal(0, 1, (5, 12))
    band = series.middle_and_band(values)
    assert band.meaning == "IQM with 95 % interval"
    for point in range(12):
        expected = bootstrap_interval(values[:, [point]], iqm, np.random.default_rng(0), resamples=1_000)
        found = (band.middle[point], band.low[point], band.high[point])
        assert found == pytest.approx((float(expected.point), float(expected.low), float(expected.high)), rel=1e-12)


def test_two_runs_get_a_range_and_no_interval():
    band = series.middle_and_band(np.array([[1.0, 5.0], [3.0, 4.0]]))
    assert (band.middle.tolist(), band.low.tolist(), band.high.tolist()) == ([2.0, 4.5], [1.0, 4.0], [3.0, 5.0])
    assert band.meaning == "mean and range"


def smooth_by_hand(values, weight):
    out, mean, total = [], 0.0, 0.0
    for value in values:
        if np.isfinite(value):
            mean, total = weight * mean + (1 - weight) * value, weight * total + (1 - weight)
        out.append(mean / total if total else np.nan)
    return np.array(out)


@pytest.mark.parametrize("weight", [0.1, 0.9, 0.99])
def test_smoothing_is_an_unbiased_exponential_mean(weight):
    values = np.random.default_rng(0).normal(5, 1, 300)
    values[[0, 7, 8, 200]] = np.nan, np.nan, np.inf, np.nan
    np.testing.assert_allclose(series.smooth(values, weight), smooth_by_hand(values, weight), rtol=1e-9)
    assert series.smooth(values, 0.0) is values


SETTINGS = {
    "agent": {"name": "dqn", "n_step": 1},
    "env": {"name": "pong"},
    "hardware": {"torch_threads": 1},
    "run_name": "a",
    "seed": 0,
}


def flat(**changes):
    return {**dict(flatten(SETTINGS)), **{key.replace("__", "."): value for key, value in changes.items()}}


def label(runs, families=None):
    return label_runs(runs, families or dict.fromkeys(runs, ("dqn", "pong", "paper_v4")))


def test_what_changes_the_meaning_of_a_score_is_what_it_is_for_comparisons():
    assert {*SCORING_KEYS} == {*run_logs.SCORING_KEYS, run_logs.FLICKER}


def test_runs_that_differ_in_their_seed_share_a_label():
    other = flat(seed="1", run_name="b", hardware__torch_threads="4")
    assert label({"a": flat(), "b": other}) == {"a": "dqn", "b": "dqn"}


def test_runs_of_other_settings_do_not():
    labels = label({"a": flat(), "b": flat(seed="1"), "c": flat(agent__n_step="3")})
    assert labels == {"a": "dqn · n_step=1", "b": "dqn · n_step=1", "c": "dqn · n_step=3"}


def test_another_agent_is_known_by_its_name_alone():
    families = {"a": ("dqn", "pong", "paper_v4"), "b": ("ppo", "pong", "paper_v4")}
    runs = {"a": flat(), "b": flat(agent__name="ppo", agent__epochs="4")}
    assert label(runs, families) == {"a": "dqn", "b": "ppo"}


def test_long_labels_are_cut_and_still_differ():
    keys = {f"agent__a_rather_long_key_{number}": str(number) for number in range(8)}
    runs = {name: flat(**keys, agent__n_step=name) for name in "123"}
    runs["1"] = {key: value for key, value in runs["1"].items() if "long" not in key}
    labels = label(runs)
    assert len(set(labels.values())) == 3
    assert all(len(text) <= LONGEST_LABEL + len(" (2)") for text in labels.values())
