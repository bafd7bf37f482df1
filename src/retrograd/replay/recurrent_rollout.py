"""Rollouts for recurrent policies: the state before every step, where games begin, and padded sequences to train on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.types import Array, Obs, Rollout, Step
from retrograd.replay.rollout import RolloutBuffer
from retrograd.replay.staging import Staging

if TYPE_CHECKING:
    from torch import Tensor, device

State = dict[str, Array]  # [N, ...] by name
StatefulValueOf = Callable[[Obs, State], Array]  # observations and the states they are met with -> [K]


@dataclass(frozen=True, slots=True)
class RolloutSequences:
    """Runs of one game each, padded at the end; the state never has to be reset inside one."""

    steps: Rollout  # [L, S]; padding repeats a real step, to be masked
    mask: Tensor  # [L, S] bool: real steps
    state: dict[str, Tensor]  # [S, ...] before each run's first step


@dataclass(frozen=True, slots=True)
class RecurrentRollout:
    """A rollout [T, N], its states and its games' first steps."""

    steps: Rollout
    state: dict[str, Tensor]  # [T, N, ...] before each step
    episode_start: Tensor  # [T, N] bool

    def sequences(
        self, sequences_per_batch: int, rng: np.random.Generator, *, length_steps: int | None = None
    ) -> Iterator[RolloutSequences]:
        """All steps once, in shuffled runs cut at every game's start and after ``length_steps``."""
        if sequences_per_batch < 1:
            raise UsageError(f"sequences_per_batch is {sequences_per_batch}: must be at least 1")
        start, length = split_runs(self.episode_start.cpu().numpy(), length_steps)
        order = rng.permutation(len(start))
        chosen = [order[begin : begin + sequences_per_batch] for begin in range(0, len(order), sequences_per_batch)]
        yield from self._gather(start, length, chosen)

    def minibatches(
        self, count: int, rng: np.random.Generator, *, length_steps: int | None = None
    ) -> Iterator[RolloutSequences]:
        """The same as ``count`` batches of nearly as many steps each; fewer where there are fewer runs."""
        if count < 1:
            raise UsageError(f"count is {count}: must be at least 1")
        start, length = split_runs(self.episode_start.cpu().numpy(), length_steps)
        order = rng.permutation(len(start))
        end = np.cumsum(length[order])
        # a run belongs to the batch that its middle step falls in
        batch = ((end - length[order] / 2) * count // end[-1]).astype(np.int64)
        yield from self._gather(start, length, [order[batch == index] for index in np.unique(batch)])

    def _gather(self, start: Array, length: Array, batches: list[Array]) -> Iterator[RolloutSequences]:
        """``start`` [R] into the flat [N * T], ``length`` [R], and the runs of each batch."""
        import torch

        num_steps = self.episode_start.shape[0]
        # row by row, so that a run's steps lie behind one another
        flat = self.steps.select(lambda tensor: tensor.transpose(0, 1).flatten(0, 1))
        state = {name: tensor.transpose(0, 1).flatten(0, 1) for name, tensor in self.state.items()}
        for chosen in batches:
            ahead = np.arange(min(int(length[chosen].max()), num_steps))[:, None]  # [L, 1]
            mask = ahead < length[chosen]
            index = torch.from_numpy(start[chosen] + np.minimum(ahead, length[chosen] - 1))  # [L, S]
            index = index.to(self.episode_start.device)
            yield RolloutSequences(
                steps=flat.select(lambda tensor, index=index: tensor[index]),  # type: ignore[misc]
                mask=torch.from_numpy(mask).to(self.episode_start.device),
                state={name: tensor[index[0]] for name, tensor in state.items()},
            )


def split_runs(episode_start: Array, length_steps: int | None) -> tuple[Array, Array]:
    """Where the runs of one game begin in the flattened [N, T], and how long they are."""
    if length_steps is not None and length_steps < 1:
        raise UsageError(f"length_steps is {length_steps}: must be at least 1")
    first = episode_start.T.copy()  # [N, T]
    first[:, 0] = True
    flat = first.reshape(-1)
    begin = np.flatnonzero(flat)
    if length_steps is not None:
        since = np.arange(flat.size) - begin[np.cumsum(flat) - 1]
        begin = np.flatnonzero(since % length_steps == 0)
    return begin, np.diff(np.append(begin, flat.size))


class RecurrentRolloutBuffer:
    """A ``RolloutBuffer`` whose steps come with the policy's state before and after them."""

    def __init__(
        self,
        num_steps: int,
        num_envs: int,
        *,
        gamma: float = 0.99,
        gae_lambda: float = 0.95,
        device: str | device = "cpu",
        pin_memory: bool = True,
    ) -> None:
        self._buffer = RolloutBuffer(
            num_steps, num_envs, gamma=gamma, gae_lambda=gae_lambda, device=device, pin_memory=pin_memory
        )
        self._stage = Staging(device, pin_memory=pin_memory)
        self._starting = np.ones(num_envs, bool)  # whether each row's next step is a game's first
        self._starts = np.zeros((num_steps, num_envs), bool)
        self._state: State = {}
        self._successor_states: list[State] = []

    @property
    def full(self) -> bool:
        return self._buffer.full

    def __len__(self) -> int:
        """Steps taken since the last rollout."""
        return len(self._buffer)

    def add(self, step: Step, state: State, next_state: State) -> None:
        """``state`` is what the policy acted with, ``next_state`` what it would meet the true successor with."""
        t = len(self._buffer)
        self._buffer.add(step)
        self._starts[t] = self._starting
        self._starting = np.array(step.reset, bool)
        for name, array in state.items():
            if name not in self._state:
                self._state[name] = np.empty((self._buffer.num_steps, *array.shape), array.dtype)
            self._state[name][t] = array
        for _, row, _ in self._buffer.successors[len(self._successor_states) :]:
            self._successor_states.append({name: array[row].copy() for name, array in next_state.items()})

    def state_dict(self) -> dict[str, Any]:
        """The steps taken so far, their states, and which rows begin a game next."""
        count = len(self)
        return {
            "buffer": self._buffer.state_dict(),
            "starting": self._starting.copy(),
            "starts": self._starts[:count].copy(),
            "state": {name: array[:count].copy() for name, array in self._state.items()},
            "successor_states": [dict(state) for state in self._successor_states],
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._buffer.load_state_dict(state["buffer"])
        count = len(self)
        self._starting = np.asarray(state["starting"]).astype(bool)
        self._starts[:count] = np.asarray(state["starts"])
        self._state = {}
        for name, saved in state["state"].items():
            array = np.asarray(saved)
            self._state[name] = np.empty((self._buffer.num_steps, *array.shape[1:]), array.dtype)
            self._state[name][:count] = array
        self._successor_states = [
            {name: np.asarray(array) for name, array in one.items()} for one in state["successor_states"]
        ]

    def check_valid(self) -> None:
        """Raise AssertionError where steps, states and games' starts contradict one another."""
        self._buffer.check_valid()
        successors = self._buffer.successors
        assert len(self._successor_states) == len(successors), "a successor has no state"
        for (_, row, _), state in zip(successors, self._successor_states, strict=True):
            assert all(len(array) == len(row) for array in state.values()), "a successor's state has other rows"
        rows = (self._buffer.num_steps, self._buffer.num_envs)
        assert all(array.shape[:2] == rows for array in self._state.values()), "a state has another shape"
        starts = self._starts[: len(self)]
        assert (self._buffer.game_starts_allowed() | ~starts).all(), "a game starts in the middle of another"

    def finish(self, value_of: StatefulValueOf) -> RecurrentRollout:
        """The rollout; ``value_of`` gets successors together with the states they are met with."""
        pairs = zip(self._buffer.successors, self._successor_states, strict=True)
        steps = self._buffer.complete([value_of(obs, state) for (_, _, obs), state in pairs])
        state, self._state, self._successor_states = self._state, {}, []
        return RecurrentRollout(
            steps=steps,
            state={name: self._stage.tensor(array) for name, array in state.items()},
            episode_start=self._stage.tensor(self._starts.copy()),
        )
