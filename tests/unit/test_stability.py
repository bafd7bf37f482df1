"""Dispersion and risk of hand-worked curves, and the low-pass filter against scipy's (REQ EXP-2)."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.signal

from retrograd.core.errors import UsageError
from retrograd.experiments import stability

FRAMES = np.arange(6) * 1e6
RETURNS = np.array([0.0, 4.0, 2.0, 6.0, 3.0, 8.0])  # changes 4 −2 4 −3 5


def test_changes_are_per_million_frames_whatever_the_spacing() -> None:
    np.testing.assert_allclose(stability.changes_per_million(FRAMES, RETURNS), [4, -2, 4, -3, 5])
    np.testing.assert_allclose(stability.changes_per_million(FRAMES / 2, RETURNS), [8, -4, 8, -6, 10])
    together = stability.changes_per_million(np.array([0, 1e6, 1e6]), np.array([1.0, 2.0, 4.0]))
    np.testing.assert_allclose(together, [2])  # two games ended in one frame


def test_dispersion_over_time_is_the_mean_iqr_of_windows_of_changes() -> None:
    assert stability.dispersion_over_time(FRAMES, RETURNS, window_points=5) == pytest.approx(4 - -2)
    # windows of two: |4+2|/2, |4+2|/2, |4+3|/2, |5+3|/2
    assert stability.dispersion_over_time(FRAMES, RETURNS, window_points=2) == pytest.approx((3 + 3 + 3.5 + 4) / 4)
    assert stability.dispersion_over_time(FRAMES, RETURNS, window_points=50) == pytest.approx(6)


def test_steady_progress_has_neither_dispersion_nor_risk_of_falling() -> None:
    line = 3.0 * np.arange(6)
    assert stability.dispersion_over_time(FRAMES, line) == 0.0
    assert stability.short_term_risk(FRAMES, line) == 3.0
    assert stability.long_term_risk(line) == 0.0


def test_risks_are_means_of_the_worst() -> None:
    assert stability.short_term_risk(FRAMES, RETURNS) == -3.0
    assert stability.short_term_risk(FRAMES, RETURNS, share=0.25) == pytest.approx((-3 - 2) / 2)
    np.testing.assert_allclose(stability.drawdown(RETURNS), [0, 0, 2, 0, 3, 0])
    assert stability.long_term_risk(RETURNS) == 3.0
    assert stability.long_term_risk(RETURNS, share=0.2) == pytest.approx((3 + 2) / 2)
    assert stability.risk_over_runs([5.0, 1.0, 3.0, 2.0, 4.0], share=0.25) == 1.5


def test_dispersion_over_runs_ignores_a_common_course_and_fast_wiggles() -> None:
    course = np.sin(np.linspace(0, 3, 200))
    offsets = np.array([0.0, 1.0, 2.0, 3.0, 4.0])[:, None]
    assert stability.dispersion_over_runs(course + offsets) == pytest.approx(2.0)
    wiggles = 5 * (-1.0) ** np.arange(200) * np.array([1, -1, 1, -1, 1])[:, None]
    noisy = stability.dispersion_over_runs(course + offsets + wiggles)
    assert noisy == pytest.approx(2.0, abs=0.15)  # unfiltered it would be about 8
    assert stability.dispersion_over_runs(course + offsets + wiggles, cutoff=0.999, order=30) > 5


@pytest.mark.parametrize("cutoff", [0.05, 0.2, 0.5])
def test_low_pass_equals_a_butterworth_filter_run_both_ways(cutoff: float) -> None:
    rng = np.random.default_rng(0)
    curves = np.cumsum(rng.normal(size=(3, 400)), axis=1)
    sections = scipy.signal.butter(8, cutoff, output="sos")
    expected = scipy.signal.sosfiltfilt(sections, curves, padtype="odd", padlen=399)
    ours = stability.low_pass(curves, cutoff=cutoff)
    inside = slice(60, -60)  # the two begin in different states; the effect dies away
    np.testing.assert_allclose(ours[:, inside], expected[:, inside], atol=2e-3 * np.ptp(curves))


def test_a_curve_keeps_its_ends_and_its_straight_lines_through_the_filter() -> None:
    line = np.linspace(-20, 20, 50)
    np.testing.assert_allclose(stability.low_pass(line, cutoff=0.2), line, atol=1e-9)
    assert stability.scale(line) == pytest.approx(38.0)
    assert stability.scale(-line) == 1.0


def test_what_has_no_meaning_is_refused() -> None:
    with pytest.raises(UsageError, match="two points"):
        stability.changes_per_million(np.array([1.0]), np.array([1.0]))
    with pytest.raises(UsageError, match="two runs"):
        stability.dispersion_over_runs(np.ones((1, 5)))
    with pytest.raises(UsageError, match="cutoff is 2"):
        stability.low_pass(np.ones(5), cutoff=2)
    with pytest.raises(UsageError, match="window_points is 1"):
        stability.dispersion_over_time(FRAMES, RETURNS, window_points=1)
