"""What the replay does in C equals what it does in numpy, bit for bit, and nonsense is refused before it is read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrograd.core.errors import FailureGate
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.replay import CompressedStorage, NStep, RawStorage, gather
from retrograd.replay.gather import KERNELS, load_kernels
from retrograd.replay.n_step import pair_slots, pair_slots_numpy
from retrograd.replay.ring import CUT, TERMINATED, Ring
from retrograd.replay.starts import Starts
from retrograd.replay.sum_tree import SumTree

needs_c = pytest.mark.skipif(not KERNELS, reason="the extension is not built")
STACK = 3
STACKED = EnvSpec("stacked", ArraySpec((STACK, 2, 2), np.dtype(np.uint8)), DiscreteActions(3), STACK)
VECTOR = EnvSpec("vector", ArraySpec((2,), np.dtype(np.float32)), DiscreteActions(3))


class SmallBlocks(CompressedStorage):
    block_slots = 4


STORAGES = {
    "raw": lambda rows: RawStorage(STACKED, 12 * rows, rows),
    "compressed": lambda rows: SmallBlocks(STACKED, 12 * rows, rows),
    "vector": lambda rows: RawStorage(VECTOR, 12 * rows, rows),
}


def filled(storage: str, rows: int, steps: int, rng: np.random.Generator) -> Ring:
    """A ring with ends of every kind, and rewards that show the order and the signs of a sum."""
    ring = STORAGES[storage](rows)
    shape = (rows, *ring.obs_specs[""].shape)
    for _ in range(steps):
        terminated, truncated, reset = rng.random((3, rows)) < 0.12
        reward = rng.normal(size=rows) * 10.0 ** rng.integers(-6, 7, rows)
        reward = np.where(rng.random(rows) < 0.2, -0.0, reward).astype(np.float32)
        obs = rng.integers(0, 2, shape).astype(ring.obs_specs[""].dtype)
        ends = reset | truncated
        ring.add(Step(obs, np.zeros(rows, int), reward, terminated, truncated, ends, obs))
    return ring


def readable(ring: Ring, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and position of steps whose window and stack are there."""
    found = []
    for row, first, end in ring.kept():
        found += [(row, position) for position in range(first + STACK, end - n_steps - 1)]
    row, position = np.array(found, np.int64).reshape(-1, 2).T
    return np.ascontiguousarray(row), np.ascontiguousarray(position)


def same(ours: Any, plain: Any) -> None:
    assert ours.dtype == plain.dtype
    assert ours.shape == plain.shape
    assert ours.tobytes() == plain.tobytes()


@needs_c
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(STORAGES)),
    st.integers(1, 3),
    st.integers(8, 60),
    st.integers(1, 6),
    st.integers(0, 2**30),
)
def test_windows_and_stacks_equal_numpy(storage: str, rows: int, steps: int, n_steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ring, reader = filled(storage, rows, steps, rng), NStep(n_steps, 0.97)
    row, position = readable(ring, n_steps)
    if len(row) == 0:
        return
    ours, plain = reader.measure(ring, row, position), reader.measure_numpy(ring, row, position)
    for one, other in zip(ours, plain, strict=True):
        same(one, other)
    alike = np.full(len(row), rng.integers(1, STACK + 2))
    for length in (ours[2], alike):
        slot, shift = pair_slots(ring, row, position, length)
        wanted, wanted_shift = pair_slots_numpy(ring, row, position, length)
        same(slot, wanted)
        assert shift == wanted_shift


@needs_c
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(STORAGES)), st.integers(1, 3), st.integers(1, 60), st.integers(0, 2**30))
def test_locate_and_claim_equal_numpy(storage: str, rows: int, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ring = filled(storage, rows, steps, rng)
    slot = rng.integers(ring.num_slots, size=20)
    for one, other in zip(ring.locate(slot), ring.locate_numpy(slot), strict=True):
        same(one, other)
    starts = Starts(ring.num_slots)
    starts.valid[:] = rng.random(ring.num_slots) < 0.6
    index = rng.integers(int(ring.head.max() + 1) * rows, size=40)
    priority = (rng.normal(size=40) * 10.0 ** rng.integers(-30, 30, 40)).astype(np.float32)
    for one, other in zip(starts.claim(ring, index, priority), starts.claim_numpy(ring, index, priority), strict=True):
        same(one, other)
    priority[rng.integers(40)] = rng.choice([np.nan, np.inf, -np.inf])
    for take in (starts.claim, starts.claim_numpy):
        with pytest.raises(FailureGate, match="not finite"):
            take(ring, index, priority)


@needs_c
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 70), st.integers(1, 40), st.integers(0, 2**30))
def test_draw_equals_numpy(capacity: int, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    value = rng.exponential(size=capacity) * (rng.random(capacity) < 0.7)
    value[rng.integers(capacity)] = 0.5
    ours, plain = SumTree(capacity, KERNELS), SumTree(capacity, None)
    ours.load(value)
    plain.load(value)
    uniform = rng.random(count)
    for one, other in zip(ours.draw(uniform.copy()), plain.draw(uniform.copy()), strict=True):
        same(one, other)
    leaf, found = ours.draw(uniform.copy())
    assert np.array_equal(found, value[leaf])
    part = ours.total / count
    below = np.concatenate([[0.0], np.cumsum(value)])
    assert (below[leaf] <= (np.arange(count) + 1) * part * (1 + 1e-12)).all()
    assert (below[leaf + 1] >= np.arange(count) * part * (1 - 1e-12)).all()


@needs_c
def test_steps_outside_of_the_ring_are_refused() -> None:
    ring = filled("raw", 2, 30, np.random.default_rng(0))
    reader, one = NStep(2, 0.9), np.array([1])
    for row, position in ((np.array([2]), one), (np.array([-1]), one), (one, np.array([-1]))):
        with pytest.raises(IndexError, match="there is no step"):
            reader.measure(ring, row, position)
        with pytest.raises(IndexError, match="there is no step"):
            pair_slots(ring, row, position, one)
    with pytest.raises(ValueError, match="differ in length"):
        reader.measure(ring, one, np.array([1, 2]))
    with pytest.raises(ValueError, match="no step"):
        pair_slots(ring, one, one, np.array([0]))
    with pytest.raises(IndexError, match="outside of 2 rows"):
        ring.locate(np.array([ring.num_slots]))
    with pytest.raises(IndexError, match="there is no step"):
        Starts(ring.num_slots).claim(ring, np.array([-1]), np.ones(1, np.float32))
    short = np.empty(0, np.float32)
    arguments = (reader._powers, one, one, ring.slots_per_row, CUT, TERMINATED, short, short, one.copy())
    with pytest.raises(ValueError, match="differ in length"):
        KERNELS.windows(ring.flags, ring.reward, *arguments)  # type: ignore[union-attr]


def test_a_build_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numpy does the work then, instead of an error in the middle of a run."""
    stale = SimpleNamespace(VERSION=gather.BUILT_FOR - 1)
    monkeypatch.setattr(gather.importlib, "import_module", lambda name: stale)
    assert load_kernels() is None
    fresh = SimpleNamespace(VERSION=gather.BUILT_FOR)
    monkeypatch.setattr(gather.importlib, "import_module", lambda name: fresh)
    assert load_kernels() is fresh
