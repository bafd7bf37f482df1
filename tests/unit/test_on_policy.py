"""The on-policy loop: whole rollouts of one policy each, whatever else is due."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from retrograd.core.protocols import Agent
from retrograd.core.types import ArraySpec, Decision, DiscreteActions, EnvSpec, EnvStep, Obs, Rollout, Update
from retrograd.replay import RolloutBuffer
from retrograd.training.on_policy import on_policy
from retrograd.training.run import Plan, Run

N = 2


class Counter:
    """Observations count; a row's game is cut by a time limit after five steps, a life ends after three."""

    num_envs = N
    spec = EnvSpec("counter", ArraySpec((1,), np.dtype(np.float32)), DiscreteActions(2))

    def __init__(self) -> None:
        self.time = np.zeros(N, np.int64)

    def observe(self) -> Obs:
        return self.time[:, None].astype(np.float32)

    def send(self, action: Any) -> None:
        self.time = self.time + 1

    def recv(self) -> EnvStep:
        next_obs = self.observe()
        truncated = self.time == 5
        self.time = np.where(truncated, 0, self.time)
        lost = np.asarray(next_obs)[:, 0] == 3
        return EnvStep(self.observe(), next_obs, np.ones(N, np.float32), lost, truncated, truncated)


class Versioned(Agent):
    """Remembers with each step how many updates it had seen; its critic says ten times what it sees."""

    def __init__(self) -> None:
        self.parts = {}
        self.version = 0
        self.rollouts: list[Rollout] = []

    def act(self, obs: Obs, state: Any = None, *, step: int, explore: bool) -> Decision:
        extras = {"log_prob": np.zeros(N), "value": self.values(obs), "version": np.full(N, self.version)}
        return Decision(np.zeros(N, np.int64), extras=extras)

    def values(self, obs: Obs) -> np.ndarray:
        return 10 * np.asarray(obs)[:, 0]

    def update(self, batch: Rollout, *, step: int) -> Update:
        self.version += 1
        self.rollouts.append(batch)
        return Update({})


def play(rollout_steps: int, total_steps: int, **plan: Any) -> tuple[Versioned, Run]:
    agent = Versioned()
    run = Run(Plan(total_steps, 1, 10, **plan), on_episode=lambda *_: None, on_update=lambda _: None)
    buffer = RolloutBuffer(rollout_steps, N, gamma=0.9, gae_lambda=1.0)
    for _ in on_policy(agent, Counter(), buffer, run, value_of=agent.values):  # type: ignore[arg-type]
        run.take_due()
    return agent, run


@pytest.mark.parametrize("rollout_steps", [1, 4, 7])
def test_every_step_of_a_rollout_is_played_by_its_own_policy(rollout_steps: int) -> None:
    agent, run = play(rollout_steps, 60, sync_every_steps=rollout_steps * N, light_eval_every_steps=6)
    assert len(agent.rollouts) == 60 // (rollout_steps * N)
    assert run.step == 60
    for number, rollout in enumerate(agent.rollouts):
        assert rollout.extras["version"].unique().tolist() == [number]


def test_without_the_pause_the_overlap_would_play_with_the_old_policy() -> None:
    """The mutant that the test above is made for."""
    agent, _ = play(4, 60)
    assert agent.rollouts[1].extras["version"][0].tolist() == [0, 0]


def test_ends_of_lives_and_time_limits_reach_the_advantages() -> None:
    """The life ends with the third step: worth 0. The limit comes with the fifth: worth 50, not the reset's 0."""
    agent, _ = play(5, 10, sync_every_steps=10)
    rollout = agent.rollouts[0]
    assert rollout.returns[:, 0].tolist() == pytest.approx(
        [1 + 0.9 * (1 + 0.9), 1 + 0.9, 1.0, 1 + 0.9 * (1 + 0.9 * 50), 1 + 0.9 * 50], rel=1e-5
    )
