"""Policy gradients through config, checkpoint, evaluation and prediction: the same ways as every agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from retrograd import A2C, PPO
from retrograd.api import Learner, evaluate_checkpoint
from retrograd.build import Builder
from retrograd.config import ConfigManager
from retrograd.contrib import RecurrentPPO
from retrograd.core.errors import UsageError
from retrograd.tracking.csv import read_csv

SMALL: dict[str, Any] = {
    "eval.full_episodes": 2,
    "eval.num_envs": 2,
    "eval.record_video": False,
    "training.num_envs": 2,
    "training.light_eval_every_frames": None,
    "training.full_eval_every_frames": None,
    "training.log_every_steps": 50,
    "agent.rollout_steps": 16,
    "hardware.torch_threads": 1,
}


def learned(kind: type[Learner], folder: Path, env: Any = "CartPole-v1", frames: int = 100, **more: Any) -> Learner:
    return kind(env, {**SMALL, "output_dir": str(folder), **more}, quiet=True).learn(frames)


@pytest.mark.parametrize("kind", [PPO, A2C, RecurrentPPO])
@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_learn_save_load_evaluate_predict(kind: type[Learner], env: str, tmp_path: Path) -> None:
    learner = learned(kind, tmp_path, env)
    assert learner.folder is not None
    rows = read_csv(learner.folder / "update_log.csv")
    assert np.isfinite([rows[-1][name] for name in ("policy_loss", "value_loss", "entropy", "grad_norm")]).all()
    loaded = kind.load(learner.folder)
    obs = np.random.default_rng(0).normal(size=gymnasium.make(env).observation_space.shape).astype(np.float32)
    action, state = learner.predict(obs)
    again, _ = loaded.predict(obs)
    assert np.array_equal(action, again)
    assert (state is not None) == (kind is RecurrentPPO)
    learner.predict(obs, state)
    assert evaluate_checkpoint(learner.folder, {"eval.full_episodes": 2})["episodes"] == 2


@pytest.mark.parametrize("kind", [PPO, RecurrentPPO])
def test_equal_seeds_give_equal_weights(kind: type[Learner], tmp_path: Path) -> None:
    first, second = learned(kind, tmp_path / "a"), learned(kind, tmp_path / "b")
    states = [learner.agent.parts["network"].state_dict() for learner in (first, second)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_preset_and_replay_come_with_the_agent() -> None:
    config = ConfigManager(None).compose(["agent=ppo", "env=breakout"])
    preset, agent = config["preset"], config["agent"]
    assert (preset["optimizer"], preset["lr"], preset["lr_end"], preset["adam_eps"]) == ("adam", 2.5e-4, 0.0, 1e-5)
    assert (config["training"]["num_envs"], agent["rollout_steps"], agent["epochs"]) == (8, 128, 4)
    assert (agent["minibatches"], agent["clip_range"], agent["max_grad_norm"]) == (4, 0.1, 0.5)
    assert dict(config["replay"]) == {}
    assert config["track"] == "custom"
    assert config.notes == ()
    assert ConfigManager(None).compose(["agent=a2c"])["training"]["num_envs"] == 16


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["preset=paper"], "preset.epsilon_start has no effect with agent.kind=ppo"),
        (["replay=uniform"], "replay.capacity has no effect with agent.kind=ppo"),
        (["preset.epsilon_start=0.5"], "unknown key preset.epsilon_start"),
        (["agent.rollout_stpes=5"], "Did you mean 'agent.rollout_steps'"),
        (["agent.clip_range=0"], "agent.clip_range=0 must be a number above 0"),
    ],
)
def test_settings_without_effect_are_refused(overrides: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ConfigManager(None).compose(["agent=ppo", *overrides])


def test_settings_that_are_left_alone_are_said_so(tmp_path: Path) -> None:
    """They stand in groups that every agent shares, so that one list of overrides can serve several agents."""
    shared = ["eval.epsilon=0.1", "training.warmup_random_steps=10", "env=cartpole"]
    for agent in ("ppo", "a2c", "a3c", "impala", "recurrent_ppo"):
        notes = ConfigManager(None).compose([f"agent={agent}", *shared]).notes
        assert [note.split()[0] for note in notes] == ["eval.epsilon", "training.warmup_random_steps"]
        assert f"agent.kind={agent}" in notes[0]
    assert len(ConfigManager(None).compose(["agent=pqn", *shared]).notes) == 1
    assert ConfigManager(None).compose(["agent=dqn", *shared]).notes == ()
    file = tmp_path / "mine.yaml"
    file.write_text("agent: ppo\neval: {epsilon: 0.0}\n")
    assert "agent.eval_policy decides" in ConfigManager(None).compose([], file).notes[0]
    folder = learned(PPO, tmp_path / "run").folder
    assert folder is not None
    with pytest.raises(UsageError, match=r"eval.epsilon has no effect with agent.kind=ppo"):
        evaluate_checkpoint(folder, {"eval.epsilon": 0.1})


def test_more_minibatches_than_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"agent.minibatches=64 must not exceed the 32 steps"):
        learned(PPO, tmp_path, **{"agent.minibatches": 64})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [PPO, RecurrentPPO])
def test_statistics_of_normalizers_are_saved_and_frozen(kind: type[Learner], tmp_path: Path) -> None:
    """REQ ENV-8: an evaluation sees what training saw, and leaves it alone."""
    both = {"training.normalize_observations": True, "training.normalize_rewards": True}
    learner = learned(kind, tmp_path, **both)
    statistics: Any = learner.agent.parts["normalizers"].state_dict()
    # the first observations, every successor and every first observation of a new game
    assert statistics["observations"]["count"] >= 102
    assert statistics["rewards"]["count"] == 100
    before = statistics["observations"]["mean"].copy()
    learner.evaluate(2)
    after: Any = learner.agent.parts["normalizers"].state_dict()
    assert np.array_equal(before, after["observations"]["mean"])
    assert learner.folder is not None
    loaded = kind.load(learner.folder)
    found: Any = loaded.agent.parts["normalizers"].state_dict()
    assert np.array_equal(np.asarray(found["observations"]["mean"]), before)
    obs = np.array([0.5, -1.0, 0.02, 1.5], np.float32)
    assert loaded.predict(obs)[0] == learner.predict(obs)[0]
    builder = Builder(loaded.config)
    builder.normalizers.load_state_dict(found)
    envs = builder.evaluation_environments(0)
    raw = np.asarray(envs.env.observe())  # type: ignore[attr-defined]
    expected = (raw - before) / np.sqrt(statistics["observations"]["var"] + 1e-8)
    assert envs.observe() == pytest.approx(np.clip(expected, -10, 10), abs=1e-5)
    envs.close()


def test_a_shorter_last_rollout_waits_for_more_steps(tmp_path: Path) -> None:
    learner = learned(PPO, tmp_path, frames=40)  # one rollout of 32 steps and 8 steps of the next
    updates = learner.agent.updates  # type: ignore[attr-defined]
    assert updates == 16
    learner.learn(24)
    assert learner.agent.updates == 32  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", [PPO, RecurrentPPO])
def test_a_critic_gets_an_optimizer_of_its_own_where_the_config_says_so(kind: type[Learner], tmp_path: Path) -> None:
    kept = {}
    for choice in ("shared", "own"):
        learner = learned(kind, tmp_path / choice, **{"agent.critic_optimizer": choice})
        assert learner.folder is not None
        kept[choice] = str(torch.load(learner.folder / "checkpoints" / "latest" / "agent.pt", weights_only=True))
        kind.load(learner.folder)
    assert "critic_optimizer" in kept["own"]
    assert "critic_optimizer" not in kept["shared"]


def test_two_optimizers_are_refused_where_gradients_are_scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder(ConfigManager(None).compose(["agent=ppo", "env=CartPole-v1", "agent.critic_optimizer=own"]))
    monkeypatch.setattr("retrograd.build.policy.make_scaler", lambda builder: object())
    envs = builder.environments()
    with pytest.raises(UsageError, match="critic_optimizer=own needs gradients that are not scaled"):
        builder.agent(envs.spec)
    envs.close()
