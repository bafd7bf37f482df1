"""Windows of one game each, for recurrent and world-model learners.

A window starts every ``stride_steps`` of a game and is padded where the game ends sooner. A lost life does not end it:
the memory goes on, only the discount is 0 there. Without a stride there is one window per game, from its first step:
with a length no game exceeds, that is the whole game.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.types import Array, Sequences
from retrograd.replay.ring import ONLY, RESET, TERMINATED, Change, Ring
from retrograd.replay.staging import Staging

if TYPE_CHECKING:
    from torch import Tensor

ONCE_PER_GAME = 1 << 40  # a stride that no game reaches


class Windows:
    """Reads ``Sequences``. ``state`` names the extras that hold the recurrent state before each step."""

    def __init__(
        self,
        length_steps: int,
        *,
        stride_steps: int | None = None,
        burn_in_steps: int = 0,
        gamma: float = 0.99,
        state: tuple[str, ...] = (),
    ) -> None:
        if not 0 <= burn_in_steps < length_steps:
            raise UsageError(f"burn_in_steps is {burn_in_steps}: must be at least 0 and below {length_steps}")
        if stride_steps is not None and not 1 <= stride_steps <= length_steps:
            raise UsageError(f"stride_steps is {stride_steps}: must be from 1 to length_steps, {length_steps}")
        if not 0.0 <= gamma <= 1.0:
            raise UsageError(f"gamma is {gamma}: must be between 0 and 1")
        self.length_steps, self.burn_in_steps, self.gamma, self.state = length_steps, burn_in_steps, gamma, state
        self.stride_steps = stride_steps or ONCE_PER_GAME
        self._ahead = np.arange(length_steps)[:, None]  # [T, 1]

    def attach(self, ring: Ring) -> None:
        shortest = self.length_steps + ring.stack + ring.block_slots + 1
        if ring.slots_per_row < shortest:
            raise UsageError(
                f"capacity is {ring.capacity}, {ring.slots_per_row} slots for each of {ring.num_envs} rows: windows of "
                f"{self.length_steps} steps need at least {shortest}"
            )
        missing = [name for name in self.state if name not in ring.extras]
        if missing:
            raise UsageError(f"the storage does not keep {missing[0]!r}, only {sorted(ring.extras)}")
        self._played = np.zeros(ring.num_envs, np.int64)  # steps of every row's present game

    def follow(self, ring: Ring, change: Change) -> Array:
        """The slots whose windows the newest step completed, all that are left at the end of a game."""
        self._played += 1
        stride = self.stride_steps
        full = self._played - self.length_steps  # the start of the window that is complete by length now
        due = np.where((full >= 0) & (full % stride == 0), full // stride, -1)
        first = np.where(change.reset, np.maximum(-(-full // stride), 0), due)
        last = np.where(change.reset, (self._played - self.burn_in_steps - 1) // stride, due)
        count = np.where(first < 0, 0, np.maximum(last - first + 1, 0))
        row = np.repeat(np.arange(ring.num_envs), count)
        nth = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        begin = change.position - self._played + 1  # the game's first step
        position = begin[row] + (first[row] + nth) * stride
        self._played[change.reset] = 0
        # the oldest steps of a game nearly as long as the ring may be gone by its end
        oldest = change.oldest[row]
        kept = (position >= oldest) & (ring.first_of_stack(row, position) >= oldest)
        return ring.slot(row[kept], position[kept])

    def read(self, ring: Ring, slot: Array, weight: Array, stage: Staging) -> Sequences:
        """The windows that start in the given slots."""
        row, position = ring.locate(slot)
        slot = ring.slot(row, position + self._ahead)  # [T, B]
        flags = ring.flags[slot]
        ends = (flags & RESET) != 0
        length = np.where(ends.any(axis=0), ends.argmax(axis=0) + 1, self.length_steps)  # [B]
        mask = self._ahead < length
        action = np.where(mask.reshape(mask.shape + (1,) * (ring.action.ndim - 1)), ring.action[slot], 0)
        terminated = (flags & TERMINATED) != 0
        obs = self._observations(ring, row, position, length, stage)
        return Sequences(
            obs=obs[ONLY] if obs.keys() == {ONLY} else obs,
            action=stage.tensor(action.astype(np.int64) if action.dtype.kind in "iu" else action),
            reward=stage.tensor(np.where(mask, ring.reward[slot], np.float32(0))),
            discount=stage.tensor(np.where(mask & ~terminated, np.float32(self.gamma), np.float32(0))),
            mask=stage.tensor(mask),
            state={name: stage.tensor(ring.extras[name][slot[0]]) for name in self.state},
            burn_in_steps=self.burn_in_steps,
            weight=stage.tensor(weight),
            index=ring.index(row, position),
        )

    def _observations(
        self, ring: Ring, row: Array, position: Array, length: Array, stage: Staging
    ) -> dict[str, Tensor]:
        first = ring.first_of_stack(row, position)[:, None]
        wanted = (position - (ring.stack - 1))[:, None] + np.arange(self.length_steps + ring.stack)
        outside = (wanted < first) | (wanted > (position + length)[:, None])
        frames = stage.gather(ring, np.where(outside, -1, ring.slot(row[:, None], wanted)))  # [B, T + C, ...]
        if ring.spec.frame_stack is None:
            return {key: tensor.transpose(0, 1) for key, tensor in frames.items()}
        # overlapping stacks are views of the same frames: [B, T + 1, ..., C] -> [T + 1, B, C, ...]
        return {key: tensor.unfold(1, ring.stack, 1).movedim(-1, 2).transpose(0, 1) for key, tensor in frames.items()}

    def check_valid(self, ring: Ring, row: Array, position: Array) -> None:
        """Raise AssertionError where a start's window is not complete, or a game's steps are miscounted."""
        if len(row):
            ends = (ring.flags[ring.slot(row, position + self._ahead)] & RESET) != 0
            ends &= position + self._ahead < ring.head[row]
            length = np.where(ends.any(axis=0), ends.argmax(axis=0) + 1, self.length_steps)
            assert (position + length <= ring.head[row]).all(), "a window reaches beyond the newest step"
            assert (length > self.burn_in_steps).all(), "a window ends within its burn-in"
        assert (self._played[~ring.live] == 0).all(), "a game that is over is still counted"
        assert (self._played <= ring.head).all(), "a game has more steps than its row"

    def state_dict(self) -> dict[str, Any]:
        return {"played": self._played.copy(), "length_steps": self.length_steps, "stride_steps": self.stride_steps}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        for name in ("length_steps", "stride_steps"):
            if state[name] != getattr(self, name):
                raise UsageError(f"the saved replay has {name} {state[name]}: this one has {getattr(self, name)}")
        self._played[:] = state["played"]
