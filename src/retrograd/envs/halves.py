"""Two groups of rows as one: whoever knows of the halves acts for one while the other is emulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.protocols import VecEnv
from retrograd.core.types import Array, EnvStep, Obs


class Halves:
    """``VecEnv`` of both halves, the first one's rows in front."""

    def __init__(self, first: VecEnv, second: VecEnv) -> None:
        if (first.spec.name, first.num_envs) != (second.spec.name, second.num_envs):
            raise UsageError(
                f"halves must be alike: {first.num_envs} rows of {first.spec.name} and "
                f"{second.num_envs} of {second.spec.name}"
            )
        self.halves = (first, second)
        self.spec = first.spec
        self.num_envs = first.num_envs + second.num_envs

    def observe(self) -> Obs:
        return join_obs([half.observe() for half in self.halves])

    def send(self, action: Array) -> None:
        for half, part in zip(self.halves, np.split(action, 2), strict=True):
            half.send(part)

    def recv(self) -> EnvStep:
        return join_outcomes([half.recv() for half in self.halves])

    def snapshot(self) -> dict[str, Any]:
        return {"first": self.halves[0].snapshot(), "second": self.halves[1].snapshot()}

    def restore(self, state: dict[str, Any]) -> None:
        self.halves[0].restore(state["first"])
        self.halves[1].restore(state["second"])

    def close(self) -> None:
        for half in self.halves:
            half.close()

    @property
    def restarts(self) -> int:
        return sum(int(getattr(half, "restarts", 0)) for half in self.halves)


def join_obs(parts: list[Obs]) -> Obs:
    """Rows of several groups behind one another."""
    if isinstance(parts[0], dict):
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return np.concatenate([np.asarray(part) for part in parts])


def join_outcomes(parts: list[EnvStep]) -> EnvStep:
    """One outcome of all rows; a group's rows are numbered on from those before it."""
    names = ("reward", "terminated", "truncated", "reset")
    arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    begin = np.cumsum([0, *(len(part.reward) for part in parts)])
    return EnvStep(
        obs=join_obs([part.obs for part in parts]),
        next_obs=join_obs([part.next_obs for part in parts]),
        episodes=tuple(
            replace(episode, row=episode.row + int(offset))
            for part, offset in zip(parts, begin, strict=False)
            for episode in part.episodes
        ),
        **arrays,
    )
