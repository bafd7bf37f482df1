"""The running picture of a training: rolling episode windows and means between two log rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from retrograd.core.types import Episode

if TYPE_CHECKING:
    from torch import Tensor

WINDOW_EPISODES = 100
JOIN_VALUES = 1024


class MetricsTracker:
    """Takes metrics as tensors without waiting for the device; fetches them all at once when asked.

    A tensor handed in must not be changed afterwards: it is kept as it is until the next fetch.
    """

    def __init__(self) -> None:
        self._returns: deque[float] = deque(maxlen=WINDOW_EPISODES)
        self._lengths: deque[int] = deque(maxlen=WINDOW_EPISODES)
        self._series: dict[str, _Series] = {}
        self.episodes = 0

    def update(self, metrics: Mapping[str, Tensor | float] | None = None, *, episodes: Iterable[Episode] = ()) -> None:
        """Take in the metrics of one update and the games that ended."""
        for name, value in (metrics or {}).items():
            if name not in self._series:
                self._series[name] = _Series()
            self._series[name].add(value)
        for episode in episodes:
            self._returns.append(episode.score)
            self._lengths.append(episode.length_steps)
            self.episodes += 1

    def get_episode_stats(self) -> dict[str, float | None]:
        """Means over the last 100 games and the last score; None before the first game ended."""
        count = len(self._returns)
        return {
            "return_mean_100": sum(self._returns) / count if count else None,
            "length_mean_100": sum(self._lengths) / count if count else None,
            "last_return": self._returns[-1] if count else None,
        }

    def get_training_stats(self) -> dict[str, float]:
        """The mean of every metric since the last reset, with one transfer from the device."""
        if not self._series:
            return {}
        import torch

        series = {name: each.tensors() for name, each in self._series.items()}
        parts = [part for tensors in series.values() for part in tensors]
        # to one device first: fetching them one by one would wait for each
        fetched = iter(torch.cat([part.to(parts[0].device) for part in parts]).tolist() if parts else ())
        return {
            name: self._series[name].mean(list(islice(fetched, sum(len(part) for part in tensors))))
            for name, tensors in series.items()
        }

    def reset(self) -> None:
        """Begin a new interval: the means start again, the windows of games go on."""
        self._series.clear()

    def state_dict(self) -> dict[str, Any]:
        return {
            "returns": list(self._returns),
            "lengths": list(self._lengths),
            "episodes": self.episodes,
            "series": {name: each.state_dict() for name, each in self._series.items()},
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._returns = deque(state["returns"], WINDOW_EPISODES)
        self._lengths = deque(state["lengths"], WINDOW_EPISODES)
        self.episodes = state["episodes"]
        self._series = {name: _Series.restored(each) for name, each in state["series"].items()}


class _Series:
    """The values of one metric since the last reset, left where they were computed.

    Values are kept, not summed on the way: then the last digit of a mean cannot depend on when somebody
    looked or a run was resumed. Many small tensors are joined now and then, which only saves memory.
    """

    __slots__ = ("_joined", "_loose", "_numbers")

    def __init__(self) -> None:
        self._numbers: list[float] = []
        self._loose: list[Tensor] = []
        self._joined: list[Tensor] = []

    def add(self, value: Tensor | float) -> None:
        if isinstance(value, int | float):
            self._numbers.append(float(value))
            return
        self._loose.append(value.detach())
        if len(self._loose) == JOIN_VALUES:
            self._join()

    def _join(self) -> None:
        import torch

        if self._loose:
            self._joined.append(torch.stack([value.reshape(()) for value in self._loose]))
            self._loose.clear()

    def tensors(self) -> list[Tensor]:
        self._join()
        return self._joined

    def mean(self, fetched: list[float]) -> float:
        """The mean of the plain numbers and of what ``tensors`` gave, fetched."""
        values = [*self._numbers, *fetched]
        return sum(values) / len(values)

    def state_dict(self) -> dict[str, Any]:
        return {"numbers": list(self._numbers), "tensors": [tensor.cpu() for tensor in self.tensors()]}

    @classmethod
    def restored(cls, state: dict[str, Any]) -> _Series:
        series = cls()
        series._numbers = list(state["numbers"])
        series._joined = list(state["tensors"])
        return series
