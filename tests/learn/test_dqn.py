"""DQN learns small tasks, and with one line broken it does not.

What the thresholds rest on: Catch (84×84 pixels through every Atari step), seeds 1, 2 and 42, 1.0 within 4,500 steps.
CartPole, the same seeds, best evaluation above 450 within 40,000 steps (457 and 478 for seeds 1 and 2), with settings
picked by trying a few. Mutants: one seed each. The reset frame as successor shows on the chain alone, because Catch
and early CartPole end by termination, where the successor does not count.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from retrograd.agents.value import ValueAgent
from retrograd.build import build_trainer
from retrograd.config import ConfigManager
from retrograd.core.cadence import crossed
from retrograd.envs.toys.chains import Chain
from retrograd.envs.vector import GymVec
from retrograd.replay import NStep

COMMON = [
    "preset=modern",
    "eval.epsilon=0.0",
    "eval.record_video=false",
    "hardware.torch_threads=1",
    "training.warmup_random_steps=500",
]
CATCH = [
    "env=catch_screen",
    "preset.lr=5e-4",
    "preset.epsilon_decay_frames=8000",
    "agent.target_update_freq=100",
    "replay.capacity=20000",
    "training.total_env_frames=18000",
    "eval.light_episodes=40",
]
CARTPOLE = [
    "env=cartpole",
    "agent.double=true",
    "agent.n_step=5",  # one-step targets reach 500, too, but fall back again and again
    "agent.gamma=0.995",
    "agent.batch_size=64",
    "agent.update_frequency=2",
    "agent.target_update_freq=128",
    "preset.lr=1e-3",
    "preset.adam_eps=1e-8",
    "preset.epsilon_decay_frames=5000",
    "preset.epsilon_end=0.15",
    "replay.capacity=50000",
    "training.total_env_frames=40000",
]
CHAIN = [
    "preset.lr=1e-3",
    "preset.epsilon_end=1.0",
    "agent.gamma=0.5",
    "agent.update_frequency=2",
    "agent.target_update_freq=50",
    "replay.capacity=5000",
    "training.total_env_frames=5000",
]


def make_trainer(tmp_path, overrides, env=None):
    config = ConfigManager(None).compose([*COMMON, *overrides, f"output_dir={tmp_path}", "run_name=run"])
    return build_trainer(config, env=env, quiet=True)


def best_score(trainer, *, every_steps: int, enough: float) -> float:
    """The best of regular evaluations; stops as soon as one is good enough."""
    best, seen = -np.inf, 0
    while not trainer.run.spent(trainer.run.step):
        trainer.train_episode()
        if crossed(seen, trainer.run.step, every_steps):
            best = max(best, trainer.evaluate("light")["mean_return"])
            if best >= enough:
                break
        seen = trainer.run.step
    trainer.close()
    return best


def chain_error(tmp_path) -> float:
    """The largest error of the learned values; γ^(4 - s) is the truth of going right from state s."""
    trainer = make_trainer(tmp_path, CHAIN, env=lambda: Chain(max_steps=5))
    while not trainer.run.spent(trainer.run.step):
        trainer.train_episode()
    trainer.close()
    gamma, states = 0.5, np.arange(1, 5)
    right = gamma ** (4.0 - states)
    left = np.concatenate([[0.01], gamma * right[:-1]])
    with torch.no_grad():
        learned = trainer.agent.online(torch.eye(6)[1:5]).numpy()
    return float(np.abs(learned - np.stack([left, right], axis=1)).max())


def bootstrap_through_terminals(monkeypatch):
    measure = NStep.measure

    def broken(self, ring, row, position):
        reward, discount, length = measure(self, ring, row, position)
        return reward, np.full_like(discount, self.gamma), length

    monkeypatch.setattr(NStep, "measure", broken)
    monkeypatch.setattr("retrograd.replay.n_step.KERNELS", None)  # the C side does not ask it


def never_sync_the_target(monkeypatch):
    monkeypatch.setattr(ValueAgent, "sync_target", lambda self: None)


def store_the_reset_frame_as_successor(monkeypatch):
    recv = GymVec.recv

    def broken(self):
        outcome = recv(self)
        return replace(outcome, next_obs=outcome.obs)

    monkeypatch.setattr(GymVec, "recv", broken)


@pytest.mark.slow
def test_catch_is_learned_from_pixels(tmp_path):
    assert best_score(make_trainer(tmp_path, CATCH), every_steps=1000, enough=0.9) >= 0.9


@pytest.mark.nightly
def test_catch_without_target_sync_is_not(tmp_path, monkeypatch):
    never_sync_the_target(monkeypatch)
    assert best_score(make_trainer(tmp_path, CATCH), every_steps=1000, enough=0.9) < 0.9


@pytest.mark.slow
def test_cartpole_is_learned(tmp_path):
    assert best_score(make_trainer(tmp_path, CARTPOLE), every_steps=2500, enough=450) >= 450


@pytest.mark.nightly
def test_cartpole_bootstrapping_through_terminals_is_not(tmp_path, monkeypatch):
    bootstrap_through_terminals(monkeypatch)
    shorter = [*CARTPOLE, "training.total_env_frames=7500"]
    assert best_score(make_trainer(tmp_path, shorter), every_steps=2500, enough=450) < 200


def test_the_chain_gets_its_exact_values(tmp_path):
    assert chain_error(tmp_path) < 0.05


@pytest.mark.parametrize(
    "mutant", [bootstrap_through_terminals, never_sync_the_target, store_the_reset_frame_as_successor]
)
def test_the_chain_with_a_broken_learner_does_not(tmp_path, monkeypatch, mutant):
    mutant(monkeypatch)
    assert chain_error(tmp_path) > 0.1
