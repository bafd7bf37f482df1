"""One ring per environment row: which step lies where, and what may no longer be read.

A step has an absolute position in its row; its slot is the position modulo the ring's length. A game of T steps takes
T + 1 slots: the true final observation lies in a slot of its own behind the last step. So the successor of the step at
position t is always the observation at position t + 1, at a time limit as anywhere else.

Only the newest frame of a stacked observation is kept. ``since`` counts the frames since the game's first one, which
is all it takes to rebuild a stack without ever reading another game's frame.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from retrograd.core.errors import UsageError, suggest
from retrograd.core.types import Array, ArraySpec, DiscreteActions, EnvSpec, Obs, Step
from retrograd.replay.memory import slots_per_row

STEP, TERMINATED, TRUNCATED, RESET = 1, 2, 4, 8  # a slot without STEP holds only an observation
CUT = TERMINATED | TRUNCATED | RESET  # no return is summed across these
SINCE_LIMIT = 255  # the counter saturates: nobody stacks more frames than this
ONLY = ""  # the key of an observation that is one array


@dataclass(frozen=True, slots=True)
class Change:
    """What one ``add`` did to every row."""

    position: Array  # [N] int64 where the step went
    cut: Array  # [N] bool: the step ended a life, a game or the watching of it
    reset: Array  # [N] bool
    oldest_before: Array  # [N] int64
    oldest: Array  # [N] int64 the first position that can still be read


def obs_arrays(obs: Obs) -> Mapping[str, Array]:
    """An observation as a mapping, whichever kind it is."""
    return obs if isinstance(obs, dict) else {ONLY: obs}


class Ring(ABC):
    """Positions, flags and small fields; where the frames themselves go is the subclass's matter."""

    name = "ring"
    block_slots = 1  # so many slots are given up together when the ring comes round

    def __init__(
        self, spec: EnvSpec, capacity: int, num_envs: int, *, extras: Mapping[str, ArraySpec] | None = None
    ) -> None:
        if num_envs < 1:
            raise UsageError(f"num_envs is {num_envs}: a replay needs at least 1 row")
        if capacity < num_envs:
            raise UsageError(f"capacity is {capacity}: must be at least 1 transition per row, {num_envs}")
        self.spec, self.capacity, self.num_envs = spec, capacity, num_envs
        self.stack = spec.frame_stack or 1
        if self.stack > SINCE_LIMIT:
            raise UsageError(f"frame_stack is {self.stack}: at most {SINCE_LIMIT} frames can be stacked")
        self.slots_per_row = slots_per_row(capacity, num_envs, self.stack, self.block_slots)
        self.num_slots = self.slots_per_row * num_envs
        obs = spec.obs if isinstance(spec.obs, dict) else {ONLY: spec.obs}
        self.obs_specs: dict[str, ArraySpec] = dict(obs)
        unstacked = 0 if spec.frame_stack is None else 1
        self._frame_shapes = {key: one.shape[unstacked:] for key, one in obs.items()}
        if spec.frame_stack is not None and any(s.shape[:1] != (self.stack,) for s in obs.values()):
            raise UsageError(f"frame_stack is {self.stack}, but the observation's first axis is not: {spec.obs}")
        self.extra_specs = dict(extras or {})
        self._base = np.arange(num_envs, dtype=np.int64) * self.slots_per_row  # [N]
        self._allocate_fields()
        self._allocate_frames()

    def _allocate_fields(self) -> None:
        self.head = np.zeros(self.num_envs, np.int64)  # position of the row's next step
        self.live = np.zeros(self.num_envs, bool)  # whether the observation at head is already there
        self.written = np.zeros(self.num_envs, np.int64)  # observations every row has ever stored: head + live
        self.flags = np.zeros(self.num_slots, np.uint8)
        self.since = np.zeros(self.num_slots, np.uint8)
        self.reward = np.zeros(self.num_slots, np.float32)
        action = self.spec.action
        if isinstance(action, DiscreteActions):
            self.action = np.zeros(self.num_slots, np.min_scalar_type(action.n - 1))
        else:
            self.action = np.zeros((self.num_slots, *action.low.shape), np.float32)
        self.extras = {k: np.zeros((self.num_slots, *s.shape), s.dtype) for k, s in self.extra_specs.items()}

    def go_on_at(self, head: Array, live: Array) -> None:
        """Where the next step of every row goes, and whether its observation is already there."""
        self.head[:], self.live[:] = head, live
        np.add(self.head, self.live, out=self.written)

    def frame_shape(self, key: str) -> tuple[int, ...]:
        """The part of an observation that one slot holds."""
        return self._frame_shapes[key]

    @abstractmethod
    def _allocate_frames(self) -> None: ...

    @abstractmethod
    def _write(self, row: Array, position: Array, frames: Mapping[str, Array]) -> None:
        """Store one frame per given row; a row's positions only ever grow, one at a time."""

    @abstractmethod
    def gather(self, slot: Array, out: Mapping[str, Array]) -> None:
        """Copy the frames of ``slot`` [...] into ``out`` [..., *frame]; zeros where the slot is negative."""

    @abstractmethod
    def frame_bytes(self) -> int:
        """Bytes the frames take now."""

    def oldest(self) -> Array:
        """[N] int64: the first position of every row whose frame is still there."""
        block = self.block_slots
        end = self.written if block == 1 else -(-self.written // block) * block
        oldest: Array = np.maximum(end - self.slots_per_row, 0)
        return oldest

    def slot(self, row: Array | int, position: Array) -> Array:
        """Where the steps lie; row and position broadcast."""
        slot: Array = self._base[row] + position % self.slots_per_row
        return slot

    def locate(self, slot: Array) -> tuple[Array, Array]:
        """Row and absolute position of what the slots hold now."""
        row = slot // self.slots_per_row
        newest = self.written[row] - 1
        return row, newest - (newest - slot) % self.slots_per_row  # a row's base is a multiple of the length

    def index(self, row: Array, position: Array) -> Array:
        """The number that names a step for good, whatever is overwritten."""
        index: Array = position * self.num_envs + row
        return index

    def first_of_stack(self, row: Array, position: Array) -> Array:
        """The oldest position that the observation at ``position`` is made of."""
        if self.stack == 1:
            return position
        return position - np.minimum(self.since[self.slot(row, position)], self.stack - 1).astype(np.int64)

    def add(self, step: Step) -> Change:
        """Remember one step of every row."""
        self._check(step)
        oldest_before = self.oldest()
        if not self.live.all():
            self._begin(np.flatnonzero(~self.live), obs_arrays(step.obs))
        rows = np.arange(self.num_envs)
        position = self.head.copy()
        slot = self.slot(rows, position)
        terminated, truncated, reset = (np.asarray(x, bool) for x in (step.terminated, step.truncated, step.reset))
        self.flags[slot] = STEP + TERMINATED * terminated + TRUNCATED * truncated + RESET * reset
        self.reward[slot] = step.reward
        self.action[slot] = step.action
        for name, field in self.extras.items():
            field[slot] = step.extras[name]
        self._append(rows, position + 1, obs_arrays(step.next_obs), since=self.since[slot])
        self.go_on_at(self.head + 1 + reset, ~reset)
        return Change(position, terminated | truncated | reset, reset, oldest_before, self.oldest())

    def _append(self, row: Array, position: Array, obs: Mapping[str, Array], since: Array) -> None:
        slot = self.slot(row, position)
        self.flags[slot] = 0
        self.since[slot] = np.minimum(since, SINCE_LIMIT - 1) + 1
        stacked = self.spec.frame_stack is not None
        self._write(row, position, {key: array[:, -1] if stacked else array for key, array in obs.items()})

    def _begin(self, row: Array, obs: Mapping[str, Array]) -> None:
        """Store a game's first observation. Frames that its stack already holds (a game joined midway, or an
        environment that repeats the first frame) get slots of their own, so that the stack can be rebuilt exactly."""
        if self.spec.frame_stack is None:
            self._put_first(row, {key: array[row] for key, array in obs.items()})
            return
        older = np.zeros(len(row), bool)
        for array in obs.values():
            older |= array[row, :-1].reshape(len(row), -1).any(axis=1)
        joined = row[older]
        for frame in range(self.stack - 1 if len(joined) else 0):
            self._put_first(joined, {key: array[joined, frame] for key, array in obs.items()}, since=frame)
            self.head[joined] += 1
        self._put_first(joined, {key: array[joined, -1] for key, array in obs.items()}, since=self.stack - 1)
        fresh = row[~older]
        self._put_first(fresh, {key: array[fresh, -1] for key, array in obs.items()})

    def _put_first(self, row: Array, frames: Mapping[str, Array], since: int = 0) -> None:
        if len(row) == 0:
            return
        slot = self.slot(row, self.head[row])
        self.flags[slot] = 0
        self.since[slot] = since
        self._write(row, self.head[row], frames)

    def _check(self, step: Step) -> None:
        for label, obs in (("obs", step.obs), ("next_obs", step.next_obs)):
            arrays = obs_arrays(obs)
            if arrays.keys() != self.obs_specs.keys():
                raise UsageError(f"{label} has the parts {sorted(arrays)}: must be {sorted(self.obs_specs)}")
            for key, spec in self.obs_specs.items():
                wanted = (self.num_envs, *spec.shape)
                if arrays[key].shape != wanted:
                    part = f"{label}[{key!r}]" if key else label
                    raise UsageError(f"{part} has the shape {arrays[key].shape}: must be {wanted}")
        wanted = (self.num_envs, *self.action.shape[1:])
        if np.shape(step.action) != wanted:
            raise UsageError(f"action has the shape {np.shape(step.action)}: must be {wanted}")
        for name in self.extras:
            if name not in step.extras:
                known = f"the step brings {sorted(step.extras)}."
                raise UsageError(
                    f"extras lack {name!r}, which is to be remembered: {known}{suggest(name, step.extras)}"
                )

    def field_bytes(self) -> int:
        """Bytes of everything but the frames."""
        return sum(field.nbytes for field in self.fields().values())

    def fields(self) -> dict[str, Array]:
        """Every per-slot array but the frames, by a name that a file can use."""
        named: dict[str, Array] = {
            "flags": self.flags,
            "since": self.since,
            "reward": self.reward,
            "action": self.action,
        }
        return named | {f"extras.{name}": field for name, field in self.extras.items()}

    def kept(self) -> list[tuple[int, int, int]]:
        """(row, first, end) of the positions that can still be read, for every row that has any."""
        bounds = zip(self.oldest().tolist(), self.written.tolist(), strict=True)
        return [(row, first, end) for row, (first, end) in enumerate(bounds) if end > first]

    def read_frames(self, row: int, first: int, end: int) -> dict[str, Array]:
        """The frames of positions [first, end) of one row."""
        slot = self.slot(row, np.arange(first, end))
        specs = self.obs_specs.items()
        out = {key: np.empty((end - first, *self.frame_shape(key)), spec.dtype) for key, spec in specs}
        self.gather(slot, out)
        return out

    @abstractmethod
    def write_frames(self, row: int, first: int, frames: Mapping[str, Array]) -> None:
        """Put back what ``read_frames`` gave."""

    def state_dict(self) -> dict[str, Any]:
        """Everything that can still be read, as plain arrays."""
        parts = []
        for row, first, end in self.kept():
            slot = self.slot(row, np.arange(first, end))
            fields = {name: field[slot] for name, field in self.fields().items()}
            parts.append({"row": row, "first": first, "frames": self.read_frames(row, first, end), "fields": fields})
        return {"head": self.head.copy(), "live": self.live.copy(), "layout": self.layout(), "rows": parts}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.check_layout(state["layout"])
        self.go_on_at(state["head"], state["live"])
        for part in state["rows"]:
            self.load_range(int(part["row"]), int(part["first"]), part["frames"], part["fields"])

    def load_range(self, row: int, first: int, frames: Mapping[str, Array], fields: Mapping[str, Array]) -> None:
        """Put back a run of positions of one row."""
        length = len(fields["flags"])
        slot = self.slot(row, np.arange(first, first + length))
        for name, field in self.fields().items():
            field[slot] = fields[name]
        self.write_frames(row, first, frames)

    def layout(self) -> dict[str, Any]:
        """What must agree between a saved replay and the one that is to take its contents."""
        shapes = {key: [list(self.frame_shape(key)), spec.dtype.str] for key, spec in self.obs_specs.items()}
        return {
            "num_envs": self.num_envs,
            "slots_per_row": self.slots_per_row,
            "stack": self.stack,
            "frames": shapes,
            "extras": sorted(self.extra_specs),
        }

    def check_layout(self, saved: dict[str, Any]) -> None:
        for name, value in self.layout().items():
            if saved.get(name) != value:
                raise UsageError(f"the saved replay has {name} {saved.get(name)}: this one has {value}")

    def check_valid(self) -> None:
        """Raise AssertionError where the bookkeeping contradicts itself."""
        oldest, written = self.oldest(), self.written
        assert (written == self.head + self.live).all(), "the observations are miscounted"
        assert (oldest >= 0).all()
        assert (written - oldest <= self.slots_per_row).all()
        for row, first, end in self.kept():
            position = np.arange(first, end)
            slot = self.slot(row, position)
            found_row, found = self.locate(slot)
            assert (found_row == row).all()
            assert (found == position).all()
            flags, since = self.flags[slot].astype(int), self.since[slot].astype(int)
            steps = (flags & STEP) > 0
            assert not (flags[~steps]).any(), "a slot without a step carries a flag"
            after = steps[:-1]
            assert (since[1:][after] == np.minimum(since[:-1][after] + 1, SINCE_LIMIT)).all(), "a game has a gap"
            ends = (flags & RESET) > 0
            assert not (ends[:-1] & steps[1:]).any(), "a game's last observation has no slot"
