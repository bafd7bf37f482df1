"""The seams: what each room asks of the others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from retrograd.core.errors import CheckpointError
from retrograd.core.types import Array, Decision, EnvSpec, EnvStep, Obs, Step, Transitions, Update

if TYPE_CHECKING:
    from torch import Tensor


class Stateful(Protocol):
    """Anything a checkpoint holds: plain tensors, arrays, numbers, strings, lists and dicts."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


class VecEnv(Protocol):
    """N rows of one environment. Hides every auto-reset mode behind true successors."""

    num_envs: int
    spec: EnvSpec

    def observe(self) -> Obs: ...  # what to act on now
    def send(self, action: Array) -> None: ...  # emulators start; checks the action first
    def recv(self) -> EnvStep: ...
    def snapshot(self) -> dict[str, Any]: ...  # everything needed to go on identically
    def restore(self, state: dict[str, Any]) -> None: ...
    def close(self) -> None: ...


class Agent(ABC):
    """Two verbs, and the list of what a checkpoint holds."""

    parts: dict[str, Stateful]
    _playing: Any = None  # the memory of a single game played through select_action

    def initial_state(self, num_envs: int) -> Any:
        """Recurrent state of fresh rows; None for agents without memory."""
        return None

    @abstractmethod
    def act(self, obs: Obs, state: Any = None, *, step: int, explore: bool) -> Decision:
        """Choose an action for every row; ``step`` drives the schedules."""

    @abstractmethod
    def update(self, batch: Any, *, step: int) -> Update:
        """Learn from one batch."""

    def metrics(self, step: int) -> dict[str, float]:
        """What the agent adds to a log row, such as its current ε."""
        return {}

    def select_action(self, obs: Obs, *, explore: bool = False, step: int = 0) -> Any:
        """The action for one observation of one game; memory is kept until ``reset``.

        Exploration follows its schedule to ``step``: at 0 agents with ε play at random, however much they have learned.
        """
        rows = {name: array[None] for name, array in obs.items()} if isinstance(obs, dict) else obs[None]
        state = self.initial_state(1) if self._playing is None else self._playing
        decision = self.act(rows, state, step=step, explore=explore)
        self._playing = decision.state
        return decision.action[0]

    def reset(self) -> None:
        """A new game begins for ``select_action``."""
        self._playing = None

    def save(self, path: str | Path) -> None:
        """All parts in one file of plain state dicts."""
        import torch

        torch.save({name: part.state_dict() for name, part in self.parts.items()}, path)

    def load(self, path: str | Path) -> None:
        """Read what ``save`` wrote; a file that holds anything but plain values is refused."""
        import torch

        try:
            states = torch.load(path, map_location="cpu", weights_only=True)
            for name, part in self.parts.items():
                part.load_state_dict(states[name])
        except Exception as error:  # a damaged or hostile file may fail anywhere in the reader
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CheckpointError(f"{path}: cannot be read ({reason})") from error


class Replay(Protocol):
    """Storage × sampler × reader."""

    steps_added: int  # since it was empty

    def add(self, step: Step) -> None: ...
    def sample(self, batch_size: int, *, step: int) -> Transitions: ...
    def update(self, index: Array, priority: Tensor) -> None: ...
    def __len__(self) -> int: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


class Sink(Protocol):
    """Where numbers go: a CSV file, the console, TensorBoard. ``table`` is train, update or eval."""

    def write(self, table: str, row: dict[str, Any]) -> None: ...
    def close(self) -> None: ...
