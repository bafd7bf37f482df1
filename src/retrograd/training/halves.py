"""Double-buffered playing: one half of the rows acts while the other half is emulated.

The first half sends its next actions before the second half's outcome is waited for, so that policy and emulators work
at the same time. At the edge of a rollout, and wherever something else is due, it does not go ahead: no step is played
with the weights of an earlier rollout. Decisions are made in the order of the halves, and depend on nothing else.

Learning off policy has no use for it: there the learner works while the emulators do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any, Protocol

import numpy as np

from retrograd.core.gates import require_finite_decision, require_finite_outcome
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import Array, Decision, Episode, Obs, Step
from retrograd.training.player import Player, load_step, match_kind, step_dict
from retrograd.training.run import Run
from retrograd.training.state import reset_rows


class TwoHalves(VecEnv, Protocol):
    halves: tuple[VecEnv, VecEnv]  # alike, the first one's rows in front


class HalvesPlayer(Player):
    """A player whose first half may be one step ahead."""

    def __init__(self, agent: Agent, envs: TwoHalves, run: Run) -> None:
        super().__init__(agent, envs, run)
        self._halves = [_Half(agent, half, run) for half in envs.halves]

    def begin(self) -> None:
        self.settle()
        for half in self._halves:
            half.begin()
        self.acted = self.run.step + (self.envs.num_envs if self.pending is not None else 0)

    def send(self) -> None:
        for half in self._halves:
            half.send(self.acted)

    def receive(self) -> None:
        """Receive the first half and let it go ahead, if nothing is due that would stop it; then the second."""
        first, second = self._halves
        if not second.in_flight:
            return  # whoever saved the run has received it already
        acted = self.acted + self.envs.num_envs
        first.receive(acted)
        ahead = None
        if not (self.run.spent(acted) or self.run.pauses(acted)):
            ahead = first.take()
            first.send(acted)
        second.receive(acted)
        self._join(first.take() if ahead is None else ahead, second.take())

    def settle(self) -> None:
        """Receive what is in flight; of a half that is ahead the outcome is kept until the other one's is there."""
        acted = self.acted + self.envs.num_envs
        for half in self._halves:
            half.receive(acted)
        first, second = self._halves
        if second.played is not None:
            self._join(first.take(), second.take())

    def _join(self, first: _Played, second: _Played) -> None:
        self.acted += self.envs.num_envs
        rows = len(first.step.reward)
        later = [Episode(**{**asdict(game), "row": game.row + rows}) for game in second.episodes]
        self.run.played([*first.episodes, *later], self.acted)
        self.pending = Step(
            **{each.name: _rows([getattr(part.step, each.name) for part in (first, second)]) for each in fields(Step)}
        )

    def state_dict(self) -> dict[str, Any]:
        pending = None if self.pending is None else step_dict(self.pending)
        return {"halves": [half.state_dict() for half in self._halves], "pending": pending}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.pending = None if state["pending"] is None else load_step(state["pending"])
        for half, saved in zip(self._halves, state["halves"], strict=True):
            half.load_state_dict(saved)

    def forget(self) -> None:
        self.pending = None
        for half in self._halves:
            half.forget()


class _Played:
    """What one half has played of a step that the other half may not have."""

    def __init__(self, step: Step, episodes: Sequence[Episode]) -> None:
        self.step, self.episodes = step, tuple(episodes)


class _Half:
    """The rows of one half: a decision in flight, or an outcome that waits for the other half, or neither."""

    def __init__(self, agent: Agent, envs: VecEnv, run: Run) -> None:
        self.agent, self.envs, self.run = agent, envs, run
        self.played: _Played | None = None
        self._sent: Decision | None = None
        self._obs: Obs = {}
        self._state: Any = None
        self._fresh: Any = None

    @property
    def in_flight(self) -> bool:
        return self._sent is not None

    def begin(self) -> None:
        self._fresh = self.agent.initial_state(self.envs.num_envs)
        self._state = self._fresh if self._state is None else match_kind(self._state, self._fresh)
        self._obs = self.envs.observe()

    def send(self, acted: int) -> None:
        if self._sent is not None or self.played is not None:
            return  # it went ahead
        decision = self.agent.act(self._obs, self._state, step=acted, explore=True)
        require_finite_decision(acted, decision.action, decision.extras)
        self.run.timer.lap("act")
        self.envs.send(decision.action)
        self._sent = decision
        self.run.timer.lap("emulate")

    def receive(self, acted: int) -> None:
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
        self.played = _Played(step, outcome.episodes)
        self._obs = outcome.obs
        self._state = reset_rows(decision.state, self._fresh, outcome.reset)

    def take(self) -> _Played:
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
            self.played = _Played(load_step(saved["step"]), [Episode(**game) for game in saved["episodes"]])

    def forget(self) -> None:
        self.played, self._state = None, None


def _rows(parts: list[Any]) -> Any:
    """Rows of both halves behind one another: arrays, or arrays by name."""
    if isinstance(parts[0], dict):
        return {name: _rows([part[name] for part in parts]) for name in parts[0]}
    joined: Array = np.concatenate(parts)
    return joined
