"""One run's playing, and what lies between two of its steps: the step not yet learned from, memories of games.

Whoever wants to save the run calls ``settle`` first. Nothing is in flight then, the step received last is kept here,
and a run that goes on from there makes the same decisions in the same order as one that was never saved.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from retrograd.core.errors import CheckpointError
from retrograd.core.gates import require_finite_decision, require_finite_outcome
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import Decision, Obs, Step
from retrograd.training.run import Run
from retrograd.training.state import reset_rows


class Player:
    """Sends actions and receives outcomes; ``pending`` is received and not yet handed to the learner."""

    def __init__(self, agent: Agent, envs: VecEnv, run: Run) -> None:
        self.agent, self.envs, self.run = agent, envs, run
        self.pending: Step | None = None
        self.acted = 0  # steps chosen, learned from or not
        self._obs: Obs = {}
        self._state: Any = None
        self._fresh: Any = None
        self._sent: Decision | None = None

    def begin(self) -> None:
        """Go on from where the environments stand."""
        self.settle()
        self._fresh = self.agent.initial_state(self.envs.num_envs)
        self._state = self._fresh if self._state is None else match_kind(self._state, self._fresh)
        self._obs = self.envs.observe()
        self.acted = self.run.step + (self.envs.num_envs if self.pending is not None else 0)

    def take(self) -> Step | None:
        """The step that waits for the learner, once."""
        step, self.pending = self.pending, None
        return step

    def send(self) -> None:
        decision = self.agent.act(self._obs, self._state, step=self.acted, explore=True)
        require_finite_decision(self.acted, decision.action, decision.extras)
        self.run.timer.lap("act")
        self.envs.send(decision.action)
        self._sent = decision
        self.run.timer.lap("emulate")

    def receive(self) -> None:
        """The outcome of what was sent, as the loop goes on."""
        self.settle()

    def settle(self) -> None:
        """Receive what is in flight, if anything is."""
        if self._sent is None:
            return
        decision, outcome = self._sent, self.envs.recv()
        self._sent = None
        self.run.timer.lap("emulate")
        self.acted += self.envs.num_envs
        require_finite_outcome(self.acted, outcome)
        self.run.played(outcome.episodes, self.acted)
        self.pending = Step(
            obs=self._obs,
            action=decision.action,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            reset=outcome.reset,
            next_obs=outcome.next_obs,
            extras=decision.extras,
        )
        self._obs = outcome.obs
        self._state = reset_rows(decision.state, self._fresh, outcome.reset)

    def state_dict(self) -> dict[str, Any]:
        if self._sent is not None:
            raise RuntimeError("actions are in flight: settle first")
        pending = None if self.pending is None else step_dict(self.pending)
        return {"state": self._state, "pending": pending}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Call it before the loop begins; the environments are restored by themselves."""
        self._state = state["state"]
        self.pending = None if state["pending"] is None else load_step(state["pending"])

    def forget(self) -> None:
        """New games begin: nothing is left of the old ones."""
        self.pending, self._state = None, None


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


def match_kind(saved: Any, fresh: Any) -> Any:
    """``saved`` with arrays where ``fresh`` has arrays, and tensors where it has tensors, on the same device."""
    if fresh is None:
        return None
    if isinstance(fresh, dict):
        return {name: match_kind(saved[name], item) for name, item in fresh.items()}
    if isinstance(fresh, tuple | list):
        return type(fresh)(match_kind(old, new) for old, new in zip(saved, fresh, strict=True))
    if isinstance(fresh, np.ndarray):
        return np.asarray(saved)
    return saved.to(fresh.device)
