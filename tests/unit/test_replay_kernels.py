"""What the replay does in C equals what it does in numpy, bit for bit, and nonsense is refused before it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrograd.core.errors import FailureGate
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.replay import CompressedStorage, NStep, RawStorage
from retrograd.replay.gather import KERNELS
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


def readable(ring: Ring, n_steps: int) -> np.ndarray:
    """The slots of steps whose window and stack are there."""
    kept = [ring.slot(row, np.arange(first + STACK, end - n_steps - 1)) for row, first, end in ring.kept()]
    return np.concatenate([np.empty(0, np.int64), *kept])


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
    start = readable(ring, n_steps)
    # all of them, and those whose windows are of one length: these are read another way
    row, position = ring.locate(start)
    _, _, length = reader.measure(ring, row, position)
    for chosen in (start, *(start[length == one] for one in np.unique(length))):
        if len(chosen):
            *ours, shift = reader.windows(ring, chosen)
            *plain, plain_shift = reader.windows_numpy(ring, chosen)
            for one, other in zip(ours, plain, strict=True):
                same(one, other)
            assert shift == plain_shift


@needs_c
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.sampled_from(sorted(STORAGES)), st.integers(1, 3), st.integers(1, 60), st.integers(0, 2**30))
def test_claim_equals_numpy(storage: str, rows: int, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ring = filled(storage, rows, steps, rng)
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
    for one, other in zip(ours.draw(uniform.copy(), 7), plain.draw(uniform.copy(), 7), strict=True):
        same(one, other)
    leaf, found = ours.draw(uniform.copy(), 7)
    assert np.array_equal(found, value[leaf] * (7 / ours.total))
    part = ours.total / count
    below = np.concatenate([[0.0], np.cumsum(value)])
    assert (below[leaf] <= (np.arange(count) + 1) * part * (1 + 1e-12)).all()
    assert (below[leaf + 1] >= np.arange(count) * part * (1 - 1e-12)).all()


@needs_c
def test_steps_outside_of_the_ring_are_refused() -> None:
    ring = filled("raw", 2, 30, np.random.default_rng(0))
    reader, one = NStep(2, 0.9), np.array([1])
    for slot in (-1, ring.num_slots):
        with pytest.raises(IndexError, match=f"slot {slot} lies outside of {ring.num_slots}"):
            reader.windows(ring, np.array([1, slot]))
    with pytest.raises(IndexError, match="there is no step"):
        Starts(ring.num_slots).claim(ring, np.array([-1]), np.ones(1, np.float32))
    arrays = {name: getattr(ring, name) for name in ("flags", "since", "reward")}
    small = {"powers": reader._powers, "written": ring.written, "start": one}
    out = {"index": one.copy(), "reward_out": np.ones(1, np.float32), "discount": np.ones(1, np.float32)}
    out["slot"] = np.empty(2 * STACK, np.int64)
    numbers = {"slots_per_row": ring.slots_per_row, "stack": STACK, "cut": CUT, "terminated": TERMINATED}
    arguments: dict[str, Any] = arrays | small | numbers | out
    KERNELS.windows(*arguments.values())  # type: ignore[union-attr]
    for name in arrays | out | {"powers": 0, "written": 0}:
        short = arguments | {name: arguments[name][: 1 if name == "powers" else -1]}
        with pytest.raises(ValueError, match="differ in length"):
            KERNELS.windows(*short.values())  # type: ignore[union-attr]
    for name, wrong in (("stack", 0), ("stack", ring.slots_per_row + 1), ("slots_per_row", 0)):
        with pytest.raises(ValueError, match="differ in length"):
            KERNELS.windows(*(arguments | {name: wrong}).values())  # type: ignore[union-attr]
