"""What is needed to bring environments back to where they were: seeds, and actions since.

Neither the native emulators nor most Gymnasium environments can hand out their state, but all of
them repeat themselves exactly when seeded and given the same actions. So each row remembers its last
seeded reset and every action since. A row whose memory has grown long is seeded anew when its game
ends, which empties it. That schedule looks at the row's own length only: taking a snapshot is a pure
read, and a run goes on identically however often it was saved.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from retrograd.core.errors import CheckpointError, UsageError
from retrograd.core.types import Array, ContinuousActions, DiscreteActions

UNSEEDED = -1


class Journal:
    """Per row: which of its seeds was used last, and the actions since."""

    def __init__(
        self, num_envs: int, action: DiscreteActions | ContinuousActions, seed: int, reseed_after_steps: int
    ) -> None:
        if seed < 0:
            raise UsageError(f"seed is {seed}, but must be 0 or more")
        self._seed = seed
        self._reseed_after_steps = reseed_after_steps
        self._rows = np.arange(num_envs)
        self._seeds_used = np.zeros(num_envs, np.int64)  # [N] seeded resets so far
        self._length = np.zeros(num_envs, np.int64)  # [N] actions since the last of them
        shape: tuple[int, ...] = ()
        dtype: type[np.generic] = np.uint8
        if isinstance(action, ContinuousActions):
            shape, dtype = action.low.shape, np.float32
        elif action.n > 256:
            dtype = np.int64
        self._actions: Array = np.zeros((num_envs, 1024, *shape), dtype)  # [N, capacity, ...]

    def row_seed(self, row: int) -> int:
        """The seed of the row's last seeded reset: 31 bits, from the run's seed, the row and a counter."""
        entropy = [self._seed, row, int(self._seeds_used[row])]
        return int(np.random.SeedSequence(entropy).generate_state(1)[0] >> 1)

    def row_seeds(self) -> list[int]:
        return [self.row_seed(int(row)) for row in self._rows]

    def append(self, action: Array) -> None:
        """Remember one action per row."""
        if self._length.max() == self._actions.shape[1]:
            self._actions = np.concatenate([self._actions, np.zeros_like(self._actions)], axis=1)
        self._actions[self._rows, self._length] = action
        self._length += 1

    def next_seeds(self, mask: Array, *, forced: Array | None = None) -> Array:
        """[N] the seed for each reset row, UNSEEDED where its random numbers just run on.

        ``forced`` rows get a seed in any case: they are new processes, whose past cannot be played again.
        """
        seeds = np.full(len(self._rows), UNSEEDED, np.int64)
        due = self._length >= self._reseed_after_steps
        for row in np.flatnonzero(mask & (due if forced is None else due | forced)):
            self._seeds_used[row] += 1
            self._length[row] = 0
            seeds[row] = self.row_seed(int(row))
        return seeds

    def state_dict(self) -> dict[str, Any]:
        longest = int(self._length.max())
        held = np.arange(longest) < self._length[:, None]  # [N, longest]
        return {
            "seed": self._seed,
            "reseed_after_steps": self._reseed_after_steps,
            "seeds_used": self._seeds_used.copy(),
            "length_steps": self._length.copy(),
            "actions": self._actions[:, :longest][held],  # [sum of lengths, ...] row after row
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        length = np.asarray(state["length_steps"], np.int64)
        if length.shape != self._length.shape:
            raise CheckpointError(
                f"the saved environments have {len(length)} rows, these have {len(self._length)}: "
                "resume with the same number of environments"
            )
        self._seed = int(state["seed"])
        self._reseed_after_steps = int(state["reseed_after_steps"])
        self._seeds_used = np.array(state["seeds_used"], np.int64)
        self._length = length.copy()
        longest = int(length.max())
        capacity = max(self._actions.shape[1], longest)
        self._actions = np.zeros((len(length), capacity, *self._actions.shape[2:]), self._actions.dtype)
        held = np.arange(capacity) < length[:, None]
        self._actions[held] = np.asarray(state["actions"])

    def replay(self, step: Callable[[Array], Array], reset: Callable[[Array, Array], None]) -> None:
        """Drive fresh environments to the present.

        ``step(action)`` says which rows ended; ``reset(mask, seeds)`` begins their next games. All rows
        step together, so those with a shorter past begin later and play something meaningless until then.
        """
        longest = int(self._length.max())
        begin = longest - self._length  # [N] when each row's past begins
        seeds = np.asarray(self.row_seeds(), np.int64)
        reset(np.ones(len(self._rows), bool), seeds)
        for now in range(longest):
            starting = begin == now
            if now and starting.any():
                reset(starting, np.where(starting, seeds, UNSEEDED))
            past = np.maximum(now - begin, 0)  # rows not begun repeat their first action
            ended = step(self._actions[self._rows, past])
            if ended.any():
                reset(ended, np.full(len(self._rows), UNSEEDED))
        empty = self._length == 0
        if longest and empty.any():
            reset(empty, np.where(empty, seeds, UNSEEDED))
