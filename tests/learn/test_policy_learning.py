"""PPO, A2C and recurrent PPO solve small tasks that broken ones do not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from retrograd import A2C, A3C, PPO
from retrograd.agents import ppo
from retrograd.api import Learner
from retrograd.contrib import RecurrentPPO
from retrograd.core.returns import gae
from retrograd.replay import rollout

QUIET: dict[str, Any] = {
    "agent.eval_policy": "greedy",
    "eval.full_episodes": 1,
    "eval.record_video": False,
    "training.light_eval_every_frames": None,
    "training.full_eval_every_frames": None,
    "hardware.torch_threads": 1,
}
CARTPOLE = {
    "agent.network": "separate",
    "agent.entropy_coef": 0.0,
    "agent.clip_range": 0.2,
    "agent.value_clip": False,
    "agent.epochs": 6,
    "preset.lr": 0.001,
}
RECURRENT = {
    **{key: value for key, value in CARTPOLE.items() if key != "agent.network"},
    "agent.hidden_size": 64,
    "agent.max_grad_norm": 1.0,
    "agent.gae_lambda": 0.98,
    "training.normalize_observations": True,
    "training.normalize_rewards": True,
}


def score(kind: type[Learner], env: Any, folder: Path, *, steps: int, episodes: int = 50, **settings: Any) -> float:
    learner = kind(env, {**QUIET, "output_dir": str(folder), **settings}, quiet=True, seed=1)
    mean: float = learner.learn(steps).evaluate(episodes)["mean_return"]
    return mean


@pytest.mark.slow
def test_ppo_solves_cartpole(tmp_path: Path) -> None:
    """REQ ALGO-3, ENV-7: 100k steps; 500 is the best there is."""
    assert score(PPO, "CartPole-v1", tmp_path, steps=100_000, **CARTPOLE) >= 475


@pytest.mark.nightly  # bit for bit a case of PPO, which is tried above
def test_a2c_solves_cartpole(tmp_path: Path) -> None:
    """REQ ALGO-3."""
    settings = {
        "agent.network": "separate",
        "agent.entropy_coef": 0.0,
        "agent.rollout_steps": 8,
        "agent.gae_lambda": 0.95,
        "agent.normalize_advantage": True,
        "preset.optimizer": "adam",
        "preset.lr": 0.003,
    }
    assert score(A2C, "CartPole-v1", tmp_path, steps=100_000, **settings) >= 450


@pytest.mark.nightly  # the memory tasks below ask the same in a third of the time
def test_recurrent_ppo_solves_cartpole_without_velocities(tmp_path: Path) -> None:
    """REQ ALGO-4, NET-4."""
    env = "retrograd/CartPoleNoVel-v0"
    assert score(RecurrentPPO, env, tmp_path, steps=60_000, **RECURRENT) >= 450


@pytest.mark.nightly
def test_ppo_without_memory_does_not(tmp_path: Path) -> None:
    settings = {**CARTPOLE, "training.normalize_observations": True, "training.normalize_rewards": True}
    assert score(PPO, "retrograd/CartPoleNoVel-v0", tmp_path, steps=60_000, **settings) < 100


@pytest.mark.slow
@pytest.mark.parametrize("cell", ["lstm", pytest.param("gru", marks=pytest.mark.nightly)])
def test_recurrent_ppo_remembers(cell: str, tmp_path: Path) -> None:
    """The bit of ten steps ago; without memory the mean is 0.

    Five seeds of five find it (LSTM); at twice the rate and with 30,000 steps only four did, and the processor's
    rounding decided which one failed.
    """
    settings = {
        "agent.cell": cell,
        "agent.hidden_size": 64,
        "agent.gamma": 1.0,
        "agent.gae_lambda": 0.98,
        "agent.entropy_coef": 0.0,
        "agent.clip_range": 0.2,
        "agent.value_clip": False,
        "agent.epochs": 8,
        "agent.rollout_steps": 66,
        "preset.lr": 0.0015,
        "training.num_envs": 16,
    }
    assert score(RecurrentPPO, "retrograd/MemoryChain-v0", tmp_path, steps=45_000, **settings) >= 0.9


class StayOrLeave(gymnasium.Env[Any, Any]):
    """Leaving pays 1 and ends the game; staying pays 0.3, ten times at most. Every observation is the same."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.ones(1, np.float32), {}

    def step(self, action: int) -> Any:
        self.time += 1
        left = action == 1
        return np.ones(1, np.float32), 1.0 if left else 0.3, left or self.time == 10, False, {}


STAY = {**CARTPOLE, "preset.lr": 0.003, "agent.rollout_steps": 32, "agent.epochs": 4}


def through_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    def mutant(reward: Any, discount: Any, *rest: Any, **options: Any) -> Any:
        return gae(reward, np.full_like(discount, 0.99), *rest, **options)

    monkeypatch.setattr(rollout, "gae", mutant)


def turned_advantages(monkeypatch: pytest.MonkeyPatch) -> None:
    normalize = ppo.normalize
    monkeypatch.setattr(ppo, "normalize", lambda advantage: -normalize(advantage))


class Negated:
    """A policy whose log-probabilities have the wrong sign, so that ratios stand on their heads."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def log_prob(self, action: Any) -> Any:
        return -self.policy.log_prob(action)

    def entropy(self) -> Any:
        return self.policy.entropy()


def turned_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ppo.PPOLoss.__call__

    def mutant(self: Any, policy: Any, value: Any, batch: Any, *, step: int) -> Any:
        return right(self, Negated(policy), value, replace(batch, log_prob=-batch.log_prob), step=step)

    monkeypatch.setattr(ppo.PPOLoss, "__call__", mutant)


def test_ppo_stays(tmp_path: Path) -> None:
    assert score(PPO, StayOrLeave, tmp_path, steps=8_000, episodes=4, **STAY) == pytest.approx(3.0)


@pytest.mark.parametrize("mutate", [through_terminals, turned_advantages, turned_ratios])
def test_mutants_leave(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mutate(monkeypatch)
    assert score(PPO, StayOrLeave, tmp_path, steps=8_000, episodes=4, **STAY) < 2.0


@pytest.mark.nightly
def test_a3c_with_two_workers_solves_cartpole(tmp_path: Path) -> None:
    """REQ ALGO-3."""
    settings = {
        "agent.network": "separate",
        "agent.entropy_coef": 0.0,
        "agent.rollout_steps": 8,
        "agent.gae_lambda": 0.95,
        "agent.normalize_advantage": True,
        "preset.lr": 0.002,
        "preset.rmsprop_eps": 1e-5,
        "preset.rmsprop_decay": 0.95,
        "training.num_envs": 8,
    }
    assert score(A3C, "CartPole-v1", tmp_path, steps=150_000, **settings) >= 450
