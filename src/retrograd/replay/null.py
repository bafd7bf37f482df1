"""The replay of agents that do not learn."""

from __future__ import annotations

from typing import Any

from retrograd.core.types import Array, Step


class NoReplay:
    """Remembers nothing."""

    steps_added = 0

    def add(self, step: Step) -> None:
        pass

    def sample(self, batch_size: int, *, step: int) -> Any:
        raise RuntimeError("there is no replay to sample from")

    def update(self, index: Array, priority: Any) -> None:
        pass

    def __len__(self) -> int:
        return 0

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        pass

    def check_valid(self) -> None:
        """There is nothing to contradict."""
