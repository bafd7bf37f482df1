"""Cadence, schedules and seeding."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrograd.core.cadence import crossed, due
from retrograd.core.errors import suggest
from retrograd.core.schedules import Constant, Linear, WarmUp
from retrograd.core.seeding import Streams


@given(st.integers(1, 64), st.integers(1, 100), st.integers(1, 9), st.integers(1, 9))
def test_due_gives_the_same_total_for_any_stride(stride, strides, numerator, denominator):
    rate = Fraction(numerator, denominator)
    events = sum(due(i * stride, (i + 1) * stride, rate) for i in range(strides))
    assert events == stride * strides * numerator // denominator


@given(st.integers(0, 10**6), st.integers(1, 64), st.integers(1, 1000))
def test_crossed_finds_every_multiple(before, stride, period):
    assert crossed(before, before + stride, period) == any(
        n % period == 0 for n in range(before + 1, before + stride + 1)
    )


def test_crossed_without_a_period_is_never():
    assert not crossed(0, 10**9, None)


def test_linear_waits_then_falls_then_stays():
    epsilon = Linear(1.0, 0.1, decay_steps=100, begin_steps=50)
    assert [epsilon(step) for step in (0, 50, 100, 150, 10**6)] == pytest.approx([1.0, 1.0, 0.55, 0.1, 0.1])
    assert Linear(1.0, 0.1, decay_steps=0)(0) == 0.1


def test_warm_up_holds_its_value():
    schedule = WarmUp(1.0, 10, Constant(0.25))
    assert [schedule(step) for step in (0, 9, 10)] == [1.0, 1.0, 0.25]


def test_streams_depend_on_name_and_seed_alone():
    first, second = Streams(3), Streams(3)
    first["other"].random(100)
    assert (first["replay"].random(5) == second["replay"].random(5)).all()
    assert (Streams(4)["replay"].random(5) != Streams(3)["replay"].random(5)).any()
    assert first.integer("envs") == second.integer("envs") != first.integer("eval")


def test_streams_go_on_after_loading_and_holders_keep_their_generator():
    streams = Streams(3)
    held = streams["replay"]
    held.random(7, dtype=np.float32)  # an odd number of halves leaves one in the generator's pocket
    state = streams.state_dict()
    expected = held.random(5)
    held.integers(100, size=3)
    streams.load_state_dict(state)
    assert streams["replay"] is held
    assert (held.random(5) == expected).all()


def test_suggest_names_close_matches_only():
    assert "'pong'" in suggest("pnog", ["pong", "breakout"])
    assert suggest("zzzzzz", ["pong", "breakout"]) == ""
