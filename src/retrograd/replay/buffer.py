"""The replay: storage × sampler × reader, three parts that do not know each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.seeding import load_rng_state, rng_state
from retrograd.core.types import Array, Step
from retrograd.replay.ring import STEP, Change, Ring
from retrograd.replay.staging import Staging
from retrograd.replay.starts import Starts

if TYPE_CHECKING:
    from torch import Tensor, device


class Indexed(Protocol):
    """A batch that says which steps its samples start at."""

    @property
    def index(self) -> Array: ...


Batch = TypeVar("Batch", bound=Indexed, covariant=True)


class Sampler(Protocol):
    """Chooses among the valid starts."""

    @property
    def uses_priorities(self) -> bool: ...  # else nobody has to fetch them from the device
    def attach(self, num_slots: int) -> None: ...
    def insert(self, slot: Array) -> None: ...
    def remove(self, slot: Array) -> None: ...
    def draw(
        self, starts: Starts, written: Array, count: int, *, step: int, rng: np.random.Generator
    ) -> tuple[Array, Array]: ...
    def update(self, slot: Array, priority: Array) -> None: ...
    def num_bytes(self) -> int: ...
    def diagnostics(self) -> dict[str, float]: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> None: ...
    def check_valid(self, starts: Starts) -> None: ...


class Reader(Protocol[Batch]):
    """Decides which steps start a sample, and makes the batch."""

    def attach(self, ring: Ring) -> None: ...
    def follow(self, ring: Ring, change: Change) -> Array: ...
    def read(self, ring: Ring, slot: Array, weight: Array, stage: Staging) -> Batch: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> None: ...
    def check_valid(self, ring: Ring, row: Array, position: Array) -> None: ...  # of the valid starts


class Replay(Generic[Batch]):
    """What the loops talk to. All randomness comes from ``rng``."""

    def __init__(
        self,
        storage: Ring,
        sampler: Sampler,
        reader: Reader[Batch],
        rng: np.random.Generator,
        device: str | device = "cpu",
        pin_memory: bool = True,
    ) -> None:
        self.storage, self.sampler, self.reader, self.rng = storage, sampler, reader, rng
        self.starts = Starts(storage.num_slots)
        reader.attach(storage)
        sampler.attach(storage.num_slots)
        self._stage = Staging(device, pin_memory=pin_memory)
        self._last_index: Array = np.zeros(0, np.int64)  # of the newest batch
        self.steps_added = 0  # since it was empty, whatever has been overwritten

    def add(self, step: Step) -> None:
        """Remember one step of every row; a one-step transition can be sampled at once."""
        change = self.storage.add(step)
        self.steps_added += self.storage.num_envs
        closed = self.starts.close(self.storage, change)
        if len(closed):
            self.sampler.remove(closed)
        opened = self.reader.follow(self.storage, change)
        if len(opened):
            self.starts.open(opened)
            self.sampler.insert(opened)

    def sample(self, batch_size: int, *, step: int) -> Batch:
        """A batch on the device. ``step`` drives the sampler's schedules."""
        if batch_size < 1:
            raise UsageError(f"batch_size is {batch_size}: must be at least 1")
        if self.starts.count == 0:
            raise UsageError("the replay holds no complete transition yet: add steps before sampling")
        ring = self.storage
        slot, weight = self.sampler.draw(self.starts, ring.written, batch_size, step=step, rng=self.rng)
        batch = self.reader.read(ring, slot, weight, self._stage)
        self._last_index = batch.index
        return batch

    def update(self, index: Array, priority: Tensor) -> None:
        """New priorities of sampled transitions; those overwritten since are ignored."""
        if tuple(priority.shape) != index.shape:
            raise UsageError(f"priority has the shape {tuple(priority.shape)}: must be that of index, {index.shape}")
        if self.sampler.uses_priorities:
            self.sampler.update(*self.starts.claim(self.storage, index, priority.numpy(force=True)))

    def __len__(self) -> int:
        """Transitions that can be sampled now."""
        return self.starts.count

    def diagnostics(self) -> dict[str, float]:
        """Figures for the log: fill, age of the last batch, priorities, effective sample size, bytes."""
        ring = self.storage
        ages = ring.head[self._last_index % ring.num_envs] - self._last_index // ring.num_envs
        figures = {
            "fill": len(self) / ring.capacity,
            "age_steps": float(ages.mean()) if len(ages) else 0.0,
            "bytes": float(
                ring.frame_bytes() + ring.field_bytes() + self.starts.valid.nbytes + self.sampler.num_bytes()
            ),
        }
        return figures | self.sampler.diagnostics()

    def state_dict(self) -> dict[str, Any]:
        return {"storage": self.storage.state_dict()} | self.light_state()

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.storage.load_state_dict(state["storage"])
        self.load_light_state(state)

    def light_state(self) -> dict[str, Any]:
        """Everything but the stored steps: small enough to be written whole every time."""
        return {
            "starts": self.starts.state_dict(),
            "sampler": self.sampler.state_dict(),
            "reader": self.reader.state_dict(),
            "rng": rng_state(self.rng),
            "steps_added": self.steps_added,
            "last_index": self._last_index.copy(),
        }

    def load_light_state(self, state: dict[str, Any]) -> None:
        self.starts.load_state_dict(state["starts"])
        self.sampler.load_state_dict(state["sampler"])
        self.reader.load_state_dict(state["reader"])
        load_rng_state(self.rng, state["rng"])
        self.steps_added = int(state["steps_added"])
        self._last_index = np.array(state["last_index"], np.int64)

    def check_valid(self) -> None:
        """Raise AssertionError where a part contradicts itself or another."""
        self.storage.check_valid()
        self.starts.check_valid()
        self.sampler.check_valid(self.starts)
        slot = np.flatnonzero(self.starts.valid)
        row, position = self.storage.locate(slot)
        assert (self.storage.flags[slot] & STEP).all(), "a start is not a step"
        assert (self.storage.first_of_stack(row, position) >= self.storage.oldest()[row]).all(), "a stack lost a frame"
        self.reader.check_valid(self.storage, row, position)


ReplayBuffer = Replay
