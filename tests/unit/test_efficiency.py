"""Sample efficiency of hand-worked curves (REQ EXP-2)."""

from __future__ import annotations

import numpy as np
import pytest

from retrograd.core.errors import UsageError
from retrograd.experiments.efficiency import (
    Reached,
    area_under_curve,
    frames_to_threshold,
    median_frames_to_threshold,
)

FRAMES = np.array([0.0, 10.0, 20.0, 40.0])
RETURNS = np.array([0.0, 10.0, 10.0, 30.0])


def test_area_is_the_mean_height_between_two_frames() -> None:
    assert area_under_curve(FRAMES, RETURNS) == pytest.approx((50 + 100 + 400) / 40)
    assert area_under_curve(FRAMES, RETURNS, first=5, last=30) == pytest.approx((37.5 + 100 + 150) / 25)
    assert area_under_curve(FRAMES, RETURNS, first=30, last=30) == 20.0
    assert area_under_curve(np.array([7.0]), np.array([3.0])) == 3.0


def test_log_area_gives_each_factor_of_frames_the_same_weight() -> None:
    frames, returns = np.array([1.0, 10.0, 100.0]), np.array([0.0, 1.0, 1.0])
    assert area_under_curve(frames, returns, scale="log") == pytest.approx((0.5 + 1) / 2)
    assert area_under_curve(frames, returns) == pytest.approx((4.5 + 90) / 99)


def test_a_curve_is_not_extended_and_a_log_does_not_start_at_zero() -> None:
    with pytest.raises(UsageError, match="0 to 40"):
        area_under_curve(FRAMES, RETURNS, last=41)
    with pytest.raises(UsageError, match="above 0"):
        area_under_curve(FRAMES, RETURNS, scale="log")
    with pytest.raises(UsageError, match="as many"):
        area_under_curve(FRAMES, RETURNS[:2])
    with pytest.raises(UsageError, match="fall"):
        area_under_curve(FRAMES[::-1], RETURNS)


def test_frames_to_threshold_is_the_first_point_that_reaches_it() -> None:
    assert frames_to_threshold(FRAMES, RETURNS, 10.0) == Reached(10.0, True)
    assert frames_to_threshold(FRAMES, RETURNS, 31.0) == Reached(40.0, False)


def test_the_median_counts_runs_that_never_arrived() -> None:
    reached = [Reached(frames, True) for frames in (10.0, 20.0, 30.0)]
    assert median_frames_to_threshold(reached) == 20.0
    slow = [Reached(100.0, False)] * 2
    assert median_frames_to_threshold(reached + slow) == 30.0  # leaving them out would say 20
    assert median_frames_to_threshold(reached + slow * 2) is None  # fewer than half arrived
    # a run watched for 15 frames tells nothing about later ones: of 4, 3 remain at risk at 20 and one arrives at each
    stopped = [Reached(15.0, False), *reached]
    assert median_frames_to_threshold(stopped) == 20.0  # 3/4 · 2/3 = 1/2
    assert median_frames_to_threshold([Reached(5.0, False)]) is None
