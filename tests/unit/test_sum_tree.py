"""The sum tree: exact sums, honest searches, and C and numpy bit for bit the same."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrograd.core.errors import UsageError
from retrograd.replay.gather import KERNELS
from retrograd.replay.sum_tree import SumTree

BOTH = [
    pytest.param(None, id="numpy"),
    pytest.param(KERNELS, id="c", marks=pytest.mark.skipif(not KERNELS, reason="no C")),
]


@pytest.mark.parametrize("kernels", BOTH)
def test_find_equals_search_in_running_sum(kernels: ModuleType | None) -> None:
    """Whole numbers add up exactly, so that the two ways must agree everywhere, on the edges too."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 4, size=1000).astype(float)
    tree = SumTree(1000, kernels)
    tree.set(np.arange(1000), values)
    mass = np.concatenate([rng.integers(0, int(values.sum()), size=5000), rng.random(5000) * values.sum()])
    assert np.array_equal(tree.find(mass), np.searchsorted(np.cumsum(values), mass, side="right"))


@pytest.mark.parametrize("kernels", BOTH)
@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 8, 1000])
def test_never_finds_an_empty_leaf(kernels: ModuleType | None, capacity: int) -> None:
    rng = np.random.default_rng(capacity)
    tree = SumTree(capacity, kernels)
    for _ in range(50):
        values = rng.random(capacity) ** 8 * (rng.random(capacity) < 0.3)
        values[rng.integers(capacity)] = 1e-12
        tree.load(values)
        mass = np.concatenate([rng.random(200) * tree.total, [0.0, tree.total, np.nextafter(tree.total, 0)]])
        found = tree.find(mass)
        assert (found < capacity).all()
        assert (tree[found] > 0).all()


@pytest.mark.parametrize("kernels", BOTH)
def test_last_of_duplicates_stays(kernels: ModuleType | None) -> None:
    tree = SumTree(6, kernels)
    tree.set(np.array([2, 5, 2, 2]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert tree.values().tolist() == [0, 0, 4, 0, 0, 2]
    assert tree.total == 6
    tree.check_valid()


@pytest.mark.parametrize("kernels", BOTH)
def test_sums_exact_after_a_million_updates(kernels: ModuleType | None) -> None:
    """REQ REPLAY-3: not close to but equal to a tree built anew."""
    rng = np.random.default_rng(1)
    tree, values = SumTree(30_011, kernels), np.zeros(30_011)
    for _ in range(100):
        index, value = rng.integers(30_011, size=10_000), rng.exponential(size=10_000) ** 3
        tree.set(index, value)
        values[index] = value
    tree.check_valid()
    fresh = SumTree(30_011, kernels)
    fresh.load(values)
    assert np.array_equal(tree.nodes, fresh.nodes)


@pytest.mark.skipif(not KERNELS, reason="the extension is not built")
@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(1, 70), st.integers(0, 2**30))
def test_c_equals_numpy(capacity: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ours, plain = SumTree(capacity, KERNELS), SumTree(capacity, None)
    for _ in range(4):
        index = rng.integers(capacity, size=rng.integers(0, 90))
        value = rng.exponential(size=len(index)) * (rng.random(len(index)) < 0.7)
        ours.set(index, value)
        plain.set(index, value)
        assert np.array_equal(ours.nodes, plain.nodes)
        mass = rng.random(50) * ours.total
        assert np.array_equal(ours.find(mass), plain.find(mass))


def test_bad_leaves_are_refused() -> None:
    tree = SumTree(5)
    with pytest.raises(IndexError, match="leaf 5 lies outside"):
        tree.set(np.array([5]), np.array([1.0]))
    with pytest.raises(UsageError, match="capacity is 0"):
        SumTree(0)
