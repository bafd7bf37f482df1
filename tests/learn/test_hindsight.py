"""BitFlip(15): solved with hindsight and hopeless without, which tells a right relabeling from a wrong one."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from retrograd.core.cadence import crossed
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step, Transitions
from retrograd.replay import Hindsight, RawStorage, Replay, Uniform

BITS, ROWS, GAMMA, EPISODES = 15, 16, 0.98, 4000
PART = ArraySpec((BITS,), np.dtype(np.float32))
SPEC = EnvSpec("bit_flip", {"achieved_goal": PART, "desired_goal": PART}, DiscreteActions(BITS))


def reward(achieved: Any, desired: Any) -> Any:
    return np.where((achieved == desired).all(axis=1), np.float32(0), np.float32(-1))


def reached(achieved: Any, desired: Any) -> Any:
    return (achieved == desired).all(axis=1)


class BitFlip:
    """Flip one bit a step; the game ends at the goal, or by a time limit of as many steps as there are bits."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.bits, self.goal = np.zeros((ROWS, BITS), np.float32), np.zeros((ROWS, BITS), np.float32)
        self.played = np.zeros(ROWS, int)
        self.begin(np.arange(ROWS))

    def begin(self, row: np.ndarray) -> None:
        self.bits[row] = self.rng.integers(2, size=(len(row), BITS))
        self.goal[row] = self.rng.integers(2, size=(len(row), BITS))
        self.played[row] = 0

    def observe(self) -> dict[str, np.ndarray]:
        return {"achieved_goal": self.bits.copy(), "desired_goal": self.goal.copy()}

    def step(self, action: np.ndarray) -> Step:
        obs = self.observe()
        self.bits[np.arange(ROWS), action] = 1 - self.bits[np.arange(ROWS), action]
        self.played += 1
        terminated = reached(self.bits, self.goal)
        truncated = (self.played == BITS) & ~terminated
        ended = terminated | truncated
        step = Step(obs, action, reward(self.bits, self.goal), terminated, truncated, ended, self.observe())
        self.begin(np.flatnonzero(ended))
        return step


class Learner:
    """A plain double DQN."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.online = nn.Sequential(nn.Linear(2 * BITS, 256), nn.ReLU(), nn.Linear(256, BITS))
        self.target = copy.deepcopy(self.online)
        self.optimizer = torch.optim.Adam(self.online.parameters(), 1e-3, fused=True)

    @staticmethod
    def join(obs: Any) -> torch.Tensor:
        parts = [torch.as_tensor(obs[key]) for key in ("achieved_goal", "desired_goal")]
        return torch.cat([parts[0], parts[1]], dim=1) * 2 - 1

    @torch.no_grad()
    def greedy(self, obs: Any) -> np.ndarray:
        return self.online(self.join(obs)).argmax(dim=1).numpy()

    def update(self, batch: Transitions) -> None:
        with torch.no_grad():
            following = self.join(batch.next_obs)
            best = self.online(following).argmax(dim=1, keepdim=True)
            value = self.target(following).gather(1, best)[:, 0]
            goal = (batch.reward + batch.discount * value).clamp(-1 / (1 - GAMMA), 0)
        value = self.online(self.join(batch.obs)).gather(1, batch.action[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(value, goal)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(self.target.parameters(), self.online.parameters(), strict=True):
                slow.lerp_(fast, 0.02)


def train(goals_per_step: int, seed: int) -> float:
    """The share of 200 greedy games that reach their goal, after at most 4,000 games of practice."""
    rng = np.random.default_rng(seed)
    reader = Hindsight(
        reward, np.random.default_rng(seed + 1), reached=reached, goals_per_step=goals_per_step, gamma=GAMMA
    )
    replay = Replay(RawStorage(SPEC, 50_000, ROWS), Uniform(), reader, np.random.default_rng(seed + 2))
    game, learner = BitFlip(rng), Learner(seed)
    finished = 0
    while finished < EPISODES:
        action = learner.greedy(game.observe())
        explore = rng.random(ROWS) < max(0.2, 1 - finished / 1000)
        step = game.step(np.where(explore, rng.integers(BITS, size=ROWS), action))
        replay.add(step)
        finished += int(step.reset.sum())
        if len(replay) > 1000:
            learner.update(replay.sample(128, step=0))
        if crossed(finished - int(step.reset.sum()), finished, 1000) and success_rate(learner) >= 0.97:
            break
    return success_rate(learner)


def success_rate(learner: Learner) -> float:
    game = BitFlip(np.random.default_rng(12345))
    outcomes: list[bool] = []
    while len(outcomes) < 200:
        step = game.step(learner.greedy(game.observe()))
        outcomes += step.terminated[step.reset].tolist()
    return float(np.mean(outcomes))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 10])
def test_bit_flip_is_solved_with_hindsight(seed: int) -> None:
    """REQ REPLAY-6."""
    assert train(goals_per_step=4, seed=seed) >= 0.95


@pytest.mark.slow
def test_bit_flip_is_hopeless_without() -> None:
    """The control: the same learner on the same games, without other goals."""
    assert train(goals_per_step=0, seed=0) <= 0.05
