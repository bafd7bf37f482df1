"""Some rows of a run's environments: a decision in flight, or an outcome that waits, or neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np

from retrograd.core.errors import CheckpointError
from retrograd.core.gates import require_finite_decision, require_finite_outcome
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import Decision, Episode, Obs, Step
from retrograd.training.run import Run
from retrograd.training.state import match_kind, reset_rows


@dataclass(frozen=True, slots=True)
class Played:
    """What some rows have played of a step that others may not have."""

    step: Step
    episodes: Sequence[Episode]


class Rows:
    """Plays its rows one step at a time; ``acted`` is the run's count of steps, which drives schedules."""

    def __init__(self, agent: Agent, envs: VecEnv, run: Run) -> None:
        self.agent, self.envs, self.run = agent, envs, run
        self.played: Played | None = None
        self._sent: Decision | None = None
        self._obs: Obs = {}
        self._state: Any = None
        self._fresh: Any = None

    @property
    def in_flight(self) -> bool:
        return self._sent is not None

    def begin(self) -> None:
        """Go on from where the environments stand."""
        self._fresh = self.agent.initial_state(self.envs.num_envs)
        self._state = self._fresh if self._state is None else match_kind(self._state, self._fresh)
        self._obs = self.envs.observe()

    def send(self, acted: int) -> None:
        if self._sent is not None or self.played is not None:
            return  # these rows are a step ahead
        decision = self.agent.act(self._obs, self._state, step=acted, explore=True)
        require_finite_decision(acted, decision.action, decision.extras)
        self.run.timer.lap("act")
        self.envs.send(decision.action)
        self._sent = decision
        self.run.timer.lap("emulate")

    def receive(self, acted: int) -> None:
        """Receive what is in flight, if anything is; ``acted`` counts the step received."""
        if self._sent is None:
            return
        decision, outcome = self._sent, self.envs.recv()
        self._sent = None
        self.run.timer.lap("emulate")
        require_finite_outcome(acted, outcome)
        step = Step(
            obs=self._obs,
            action=decision.action,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            reset=outcome.reset,
            next_obs=outcome.next_obs,
            extras=decision.extras,
        )
        self.played = Played(step, outcome.episodes)
        self._obs = outcome.obs
        self._state = reset_rows(decision.state, self._fresh, outcome.reset)

    def take(self) -> Played:
        assert self.played is not None
        played, self.played = self.played, None
        return played

    def state_dict(self) -> dict[str, Any]:
        if self._sent is not None:
            raise RuntimeError("actions are in flight: settle first")
        played = None
        if self.played is not None:
            played = {"step": step_dict(self.played.step), "episodes": [asdict(game) for game in self.played.episodes]}
        return {"state": self._state, "played": played}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._state, saved = state["state"], state["played"]
        self.played = None
        if saved is not None:
            self.played = Played(load_step(saved["step"]), [Episode(**game) for game in saved["episodes"]])


def step_dict(step: Step) -> dict[str, Any]:
    """A step as a checkpoint holds it."""
    return {field.name: getattr(step, field.name) for field in fields(Step)}


def load_step(saved: Any) -> Step:
    """What ``step_dict`` gave."""
    names = {field.name for field in fields(Step)}
    if not isinstance(saved, dict) or saved.keys() != names:
        raise CheckpointError(f"the saved step has the parts {sorted(saved)}, expected are {sorted(names)}")
    return Step(**{name: _arrays(value) for name, value in saved.items()})


def _arrays(value: Any) -> Any:
    """Arrays, as they were before a checkpoint made tensors of them."""
    if isinstance(value, dict):
        return {name: _arrays(item) for name, item in value.items()}
    return np.asarray(value)
