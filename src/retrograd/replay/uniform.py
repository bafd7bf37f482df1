"""Every valid start alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.types import Array
from retrograd.replay.starts import Starts


class Uniform:
    """Draws with replacement; a draw that hits an invalid slot is drawn again, which leaves the rest uniform."""

    uses_priorities = False

    def attach(self, num_slots: int) -> None:
        """Nothing is kept per slot."""

    def insert(self, slot: Array) -> None:
        """New starts need no preparation."""

    def remove(self, slot: Array) -> None:
        """Lost starts leave nothing behind."""

    def draw(
        self, starts: Starts, written: Array, count: int, *, step: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """``count`` slots and their weights. ``written`` [N]: observations every row has stored so far."""
        length = len(starts.valid) // len(written)
        filled = min(int(written.max()), length)
        candidates = filled * len(written)
        found: list[Array] = []
        missing = count
        while missing:
            tries = int(missing * candidates / starts.count * 1.1) + 8
            drawn = rng.integers(candidates, size=tries)
            slot = drawn if filled == length else drawn // filled * length + drawn % filled
            found.append(slot[starts.valid[slot]][:missing])
            missing -= len(found[-1])
        slot = found[0] if len(found) == 1 else np.concatenate(found)
        return slot, np.ones(count, np.float32)

    def update(self, slot: Array, priority: Array) -> None:
        """Priorities change nothing here."""

    def num_bytes(self) -> int:
        return 0

    def diagnostics(self) -> dict[str, float]:
        return {"effective_sample_size": 1.0}

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """There is no state."""

    def check_valid(self, starts: Starts) -> None:
        """There is nothing to contradict."""
