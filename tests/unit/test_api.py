"""The Python API: learn, evaluate, predict, save, load, with names, environments and functions."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import retrograd
from retrograd import DQN
from retrograd.core.errors import UsageError
from retrograd.tracking.csv import read_csv

SMALL = {
    "training.warmup_random_steps": 100,
    "agent.replay_start_size": 100,
    "replay.capacity": 2000,
    "eval.full_episodes": 2,
    "eval.num_envs": 2,
    "eval.record_video": False,
    "hardware.torch_threads": 1,
}


def small(tmp_path, env="CartPole-v1", **settings):
    return DQN(env, SMALL, output_dir=str(tmp_path), quiet=True, **settings)


def test_learn_evaluate_predict_save_load(tmp_path):
    model = small(tmp_path, seed=3, lr=1e-3).learn(total_frames=400)
    assert (model.folder / "summary.json").is_file()
    assert model.evaluate(episodes=3)["episodes"] == 3
    obs = np.array([0.01, -0.02, 0.03, 0.04], np.float32)
    action, _ = model.predict(obs)
    assert action in (0, 1)
    batch, _ = model.predict(np.stack([obs, -obs, obs]))
    assert batch.shape == (3,)
    assert batch[0] == action
    path = model.save(tmp_path / "saved")
    for source in (path, tmp_path / "saved", model.folder):
        loaded = DQN.load(source)
        assert (loaded.predict(np.stack([obs, -obs, obs]))[0] == batch).all()
    assert loaded.config["preset"]["lr"] == 1e-3


def test_learning_goes_on_where_it_was(tmp_path):
    model = small(tmp_path).learn(total_frames=200)
    folder = model.folder
    model.learn(total_frames=100)
    assert model.folder == folder
    assert model._trainer.run.step == 304  # eight rows at a time


def test_an_environment_object_and_a_function(tmp_path):
    env = gymnasium.make("CartPole-v1")
    model = small(tmp_path, env=env, light_eval_every_frames=40).learn(total_frames=150)
    assert model.evaluate(episodes=2)["mean_return"] >= 1
    played = sum(int(row["episode_length"]) for row in read_csv(model.folder / "train_log.csv"))
    assert 150 - 60 < played <= 150  # evaluations between did not touch the environment's own games
    many = small(tmp_path, env=lambda: gymnasium.make("Acrobot-v1", max_episode_steps=50)).learn(total_frames=160)
    assert many.config["training"]["num_envs"] == 8


def test_settings_are_checked():
    with pytest.raises(UsageError, match="'batch_size'"):
        DQN("pong", bach_size=3)
    with pytest.raises(UsageError, match="several groups"):
        DQN("pong", num_envs=3)
    with pytest.raises(UsageError, match="from 0 to 1"):
        DQN("pong", gamma=2)
    with pytest.raises(UsageError, match="'pong'"):
        DQN("pongg")


def test_another_kind_of_agent_is_not_loaded(tmp_path):
    path = retrograd.RandomPlayer("CartPole-v1", {"eval.num_envs": 1}).save(tmp_path)
    with pytest.raises(UsageError, match="kind 'random'"):
        DQN.load(path)


def test_public_names_are_the_objects_of_the_design():
    from retrograd.core.protocols import Agent

    assert retrograd.BaseAgent is Agent
    for name in retrograd.__all__:
        assert getattr(retrograd, name) is not None
    assert {"select_action", "update", "save", "load", "reset"} <= set(dir(retrograd.BaseAgent))
    assert {"train", "train_episode", "evaluate", "save_checkpoint"} <= set(dir(retrograd.Trainer))
    assert {"forward", "get_q_values"} <= set(dir(retrograd.QNetwork))
    assert {"create_env", "apply_wrappers"} <= set(dir(retrograd.EnvironmentFactory))


def test_select_action_save_and_load_of_an_agent(tmp_path):
    first, second = small(tmp_path, seed=1).agent, small(tmp_path, seed=2).agent
    obs = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    assert (first.greedy(obs) != second.greedy(obs)).any()
    first.save(tmp_path / "agent.pt")
    second.load(tmp_path / "agent.pt")
    assert (first.greedy(obs) == second.greedy(obs)).all()
    first.reset()
    assert first.select_action(obs[0]) in (0, 1)


def test_select_action_explores_as_much_as_its_step_says(tmp_path):
    agent, obs = small(tmp_path, seed=1).agent, np.array([0.1, 0.2, 0.0, -0.1], np.float32)
    best = agent.select_action(obs)
    assert 60 < sum(agent.select_action(obs, explore=True) == best for _ in range(200)) < 140
    assert sum(agent.select_action(obs, explore=True, step=10**9) == best for _ in range(200)) > 160
