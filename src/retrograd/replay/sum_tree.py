"""A sum tree in one float64 array: node i has the children 2i and 2i + 1, the leaves are the second half.

A parent is always computed anew as left + right, never changed by a difference, so that the sums are exactly those of
a tree built from its leaves, however many updates went before.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.types import Array
from retrograd.replay.gather import KERNELS


class SumTree:
    """Batches of updates and of searches. ``kernels=None`` does the same in numpy."""

    def __init__(self, capacity: int, kernels: ModuleType | None = KERNELS) -> None:
        if capacity < 1:
            raise UsageError(f"capacity is {capacity}: a sum tree needs at least 1 leaf")
        self.capacity = capacity
        self.leaves = 1 << (capacity - 1).bit_length()  # those beyond capacity stay 0 and are never found
        self.nodes = np.zeros(2 * self.leaves, np.float64)
        self._kernels = kernels

    @property
    def total(self) -> float:
        return float(self.nodes[1])

    def __getitem__(self, index: Array) -> Array:
        value: Array = self.nodes[self.leaves + index]
        return value

    def set(self, index: Array, value: Array) -> None:
        """Write leaves; of an index that comes twice the last value stays."""
        index = np.ascontiguousarray(index, np.int64)
        value = np.ascontiguousarray(value, np.float64)
        if self._kernels is not None:
            self._kernels.set(self.nodes, index, value, self.capacity)
        else:
            self._set_numpy(index, value)

    def _set_numpy(self, index: Array, value: Array) -> None:
        if index.size == 0:
            return
        outside = index[(index < 0) | (index >= self.capacity)]
        if outside.size:
            raise IndexError(f"leaf {outside[0]} lies outside of [0, {self.capacity})")
        unique, last = np.unique(index[::-1], return_index=True)
        node = unique + self.leaves
        self.nodes[node] = value[::-1][last]
        while node[0] > 1:
            node = np.unique(node >> 1)
            self.nodes[node] = self.nodes[2 * node] + self.nodes[2 * node + 1]

    def find(self, mass: Array) -> Array:
        """For each mass in [0, total) the first leaf at which the running sum exceeds it; never an empty leaf."""
        mass = np.array(mass, np.float64)
        found = np.empty(mass.shape, np.int64)
        if self._kernels is not None:
            self._kernels.find(self.nodes, mass, found)
            return found
        found[:] = 1
        for _ in range(self.leaves.bit_length() - 1):
            left, right = self.nodes[2 * found], self.nodes[2 * found + 1]
            go_right = ~(mass < left) & (right > 0)
            mass -= np.where(go_right, left, 0.0)
            found = 2 * found + go_right
        return found - self.leaves

    def draw(self, uniform: Array, expected: float) -> tuple[Array, Array]:
        """One leaf from each of as many equal parts of the mass as there are numbers in [0, 1), and the leaves' values,
        scaled so that all leaves together have the sum ``expected``. The numbers are used up."""
        if self._kernels is not None:
            leaf = np.empty(uniform.shape, np.int64)
            self._kernels.draw(self.nodes, uniform, expected, leaf)
            return leaf, uniform
        leaf = self.find((np.arange(len(uniform)) + uniform) * (self.total / len(uniform)))
        return leaf, self[leaf] * (expected / self.total)

    def values(self) -> Array:
        """[capacity] all leaves."""
        leaves: Array = self.nodes[self.leaves : self.leaves + self.capacity]
        return leaves

    def load(self, values: Array) -> None:
        """Set all leaves at once."""
        self.nodes[:] = 0.0
        self.nodes[self.leaves : self.leaves + self.capacity] = values
        first = self.leaves
        while first > 1:
            below = self.nodes[first : 2 * first]
            self.nodes[first // 2 : first] = below[0::2] + below[1::2]
            first //= 2

    def check_valid(self) -> None:
        """Raise AssertionError unless every parent is exactly the sum of its children and no leaf is negative."""
        parents = np.arange(1, self.leaves)
        assert (self.nodes[parents] == self.nodes[2 * parents] + self.nodes[2 * parents + 1]).all(), "a sum is wrong"
        assert (self.values() >= 0).all(), "a priority is negative"
        assert not self.nodes[self.leaves + self.capacity :].any(), "a leaf beyond the capacity is not empty"
