"""The Python API: learn, evaluate, predict, save, load, with names, environments and functions."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

import retrograd
from retrograd import DQN, build
from retrograd.config import ConfigManager
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


class Spied(gymnasium.Wrapper):
    """Counts what is done to it; as most wrappers it does not tell how it was made."""

    resets = closes = 0

    def reset(self, **options):
        self.resets += 1
        return self.env.reset(**options)

    def close(self):
        self.closes += 1
        self.env.close()


def test_predict_and_evaluate_leave_an_environment_alone(tmp_path):
    env = Spied(gymnasium.make("CartPole-v1"))
    model = small(tmp_path, env=env)
    obs, _ = env.reset()
    for _ in range(3):
        assert model.predict(obs)[0] in (0, 1)
    assert model.evaluate(episodes=2)["episodes"] == 2
    assert (env.resets, env.closes) == (1, 0)


def test_predict_asks_one_environment_of_a_function_and_closes_it(tmp_path):
    made = []

    def make():
        made.append(Spied(gymnasium.make("CartPole-v1")))
        return made[-1]

    model = small(tmp_path, env=make)
    model.predict(np.zeros(4, np.float32))
    count = len(made)
    for _ in range(5):
        model.predict(np.zeros(4, np.float32))
    assert len(made) == count
    assert all(env.closes == 1 for env in made)


def test_a_run_on_an_environment_object_goes_on(tmp_path):
    """Evaluations between played on another one, so that its games can be repeated."""
    often = {**SMALL, "training.light_eval_every_frames": 40, "eval.light_episodes": 1, "checkpoint.every_frames": 50}
    env = Spied(gymnasium.make("CartPole-v1"))
    model = DQN(env, often, output_dir=str(tmp_path), quiet=True).learn(total_frames=150)
    assert env.closes == 0
    again = Spied(gymnasium.make("CartPole-v1"))
    assert retrograd.resume(model.folder, {"training.total_env_frames": 200}, env=again)["step"] == 200


def test_an_environment_that_allows_no_second_one_is_refused_before_the_run(tmp_path):
    env = Spied(gymnasium.make("CartPole-v1"))
    env.lock = threading.Lock()  # nobody can copy that
    with pytest.raises(UsageError, match="hand in a function"):
        small(tmp_path, env=env).learn(total_frames=100)
    assert list(tmp_path.iterdir()) == []


class Endless(gymnasium.Env):
    """Never ends by itself and gives 1 a step."""

    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,), np.float32), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), 1.0, False, False, {}


def test_the_limit_of_training_games_ends_those_of_an_evaluation(tmp_path):
    model = small(tmp_path, env=Endless, max_episode_steps=7)
    result = model.evaluate(episodes=3)
    assert result["returns"] == [7.0] * 3
    assert result["mean_length"] == 7.0
    builder = build.Builder(model.config, env=Endless)
    assert [len(episodes) for episodes in played(builder.viewer(0), steps=14)] == [*[0] * 6, 1] * 2


def test_an_atari_game_is_judged_up_to_its_protocols_own_limit():
    config = ConfigManager(None).compose(["env=pong", "training.max_episode_steps=3", "eval.num_envs=1"])
    assert not any(played(build.Builder(config).evaluation_environments(0), steps=6))


def played(envs, steps):
    """The games that ended, step by step."""
    ended = []
    for _ in range(steps):
        envs.send(np.zeros(1, np.int64))
        ended.append(envs.recv().episodes)
    envs.close()
    return ended


def test_counts_below_one_are_refused(tmp_path):
    model = small(tmp_path)
    for frames in (0, -100):
        with pytest.raises(UsageError, match=f"total_frames={frames}"):
            model.learn(frames)
    assert list(tmp_path.iterdir()) == []
    model.learn(100)
    with pytest.raises(UsageError, match="total_frames=0"):
        model.learn(0)
    for episodes in (0, -3):
        with pytest.raises(UsageError, match="episodes"):
            model.evaluate(episodes=episodes)


def test_a_checkpoint_is_evaluated_with_words_as_with_a_mapping(tmp_path):
    path = retrograd.RandomPlayer("CartPole-v1", {"eval.num_envs": 1}).save(tmp_path)
    result = retrograd.evaluate_checkpoint(path, ["eval.full_episodes=2", "seed=3"])
    assert result == retrograd.evaluate_checkpoint(path, {"eval.full_episodes": 2, "seed": 3})
    assert result["episodes"] == 2


def test_trackers_are_closed_when_the_learner_goes(tmp_path):
    closed = []
    tracker = SimpleNamespace(write=lambda *_: None, close=lambda: closed.append(True))
    model = small(tmp_path).learn(100)
    model._trainer.logger.add(tracker)
    model.learn(100)
    assert not closed
    del model
    gc.collect()
    assert closed == [True]


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
