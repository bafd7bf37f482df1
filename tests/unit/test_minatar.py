"""Boards of booleans: how they are read, which encoder they get, and the five games where they are installed."""

import sys

import numpy as np
import pytest
import torch
from gymnasium import Env, spaces

from retrograd.build.builder import Builder
from retrograd.build.protocol import planned_spec
from retrograd.config import ConfigManager
from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec
from retrograd.envs.factory import EnvironmentFactory
from retrograd.envs.minatar import GAMES
from retrograd.envs.spaces import describe_observations
from retrograd.envs.vector import GymVec
from retrograd.envs.wrappers import NormalizeObservations
from retrograd.networks.encoders import BoardCNN, make_encoder

manager = ConfigManager(user_folder=None)


class Board(Env):
    """A light wanders over a board of 10 × 10 cells and 10 channels; following it pays."""

    observation_space = spaces.Box(0, 1, (10, 10, 10), np.bool_)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self._look(), {}

    def step(self, action):
        self.time += 1
        return self._look(), float(action == self.time % 4), self.time == 20, False, {}

    def _look(self):
        board = np.zeros((10, 10, 10), np.bool_)
        board[self.time % 10, 3, 7] = True
        return board


@pytest.mark.parametrize("channels", [4, 10])
def test_channels_come_first_even_where_the_board_is_a_cube(channels):
    spec, convert = describe_observations(spaces.Box(0, 1, (10, 10, channels), np.bool_))
    assert (spec.shape, spec.dtype) == ((channels, 10, 10), np.dtype(np.bool_))
    board = np.zeros((2, 10, 10, channels), np.bool_)
    board[1, 2, 5, 3] = True
    assert np.argwhere(convert(board)).tolist() == [[1, 3, 2, 5]]


def test_other_booleans_stay_vectors():
    spec, _ = describe_observations(spaces.Box(0, 1, (5,), np.bool_))
    assert (spec.shape, spec.dtype) == ((5,), np.dtype(np.float32))


def test_a_board_gets_the_small_encoder():
    """16 filters of 3 × 3 and 128 units; cells are 0 and 1, not 1/255."""
    spec = ArraySpec((4, 10, 10), np.dtype(np.bool_), 0, 1)
    encoder = make_encoder(spec)
    assert isinstance(encoder, BoardCNN)
    shapes = [tuple(parameter.shape) for parameter in encoder.parameters()]
    assert shapes == [(16, 4, 3, 3), (16,), (128, 1024), (128,)]
    board = torch.rand(3, 4, 10, 10) < 0.3
    features = encoder.project(torch.relu(encoder.convolutions[0](board.float())).flatten(1))
    assert torch.equal(encoder(board), features)
    assert make_encoder(spec, projected=False)(board).shape == (3, 1024)
    assert any(isinstance(layer, torch.nn.GroupNorm) for layer in make_encoder(spec, layer_norm=True).modules())


def test_what_cannot_read_a_board_says_so():
    with pytest.raises(UsageError, match="boards"):
        make_encoder(ArraySpec((4, 10, 10), np.dtype(np.bool_), 0, 1), encoder="impala")
    with pytest.raises(UsageError, match="3×3"):
        make_encoder(ArraySpec((4, 2, 10), np.dtype(np.bool_), 0, 1))
    with pytest.raises(UsageError, match="vectors"):
        NormalizeObservations(GymVec([Board], seed=0))


@pytest.mark.parametrize("agent", ["minatar_rainbow", "pqn", "ppo", "recurrent_ppo"])
def test_every_family_plays_and_learns_on_a_board(agent, tmp_path):
    """Through replay or rollout, with booleans all the way to the network."""
    from retrograd.build import build_trainer

    few = ["training.total_env_frames=160", "training.num_envs=4", "hardware.device=cpu", "eval.record_video=false"]
    if agent == "minatar_rainbow":
        few += ["training.warmup_random_steps=80", "replay.capacity=1000"]
    else:
        few += ["agent.rollout_steps=16", "agent.minibatches=2"]
    config = manager.compose([f"agent={agent}", f"output_dir={tmp_path}", "run_name=run", *few])
    trainer = build_trainer(config, env=Board, quiet=True)
    network = next(value for name, value in trainer.agent.parts.items() if isinstance(value, torch.nn.Module))
    before = [parameter.clone() for parameter in network.parameters()]
    while not trainer.run.spent(trainer.run.step):
        trainer.train_episode()
    trainer.close()
    assert trainer.envs.spec.obs.dtype == np.bool_
    assert any(not torch.equal(a, b) for a, b in zip(before, network.parameters(), strict=True))


def test_the_settings_of_the_paper_and_of_dopamine():
    config = manager.compose(["agent=minatar_dqn", "env=minatar_breakout"])
    agent, preset, training = config["agent"], config["preset"], config["training"]
    assert (config["env"]["game_id"], config["replay"]["capacity"]) == ("MinAtar/Breakout-v1", 100_000)
    assert agent["target_update_freq"] * agent["update_frequency"] == 1000
    assert (preset["lr"], preset["adam_eps"], training["warmup_random_steps"]) == (2.5e-4, 3.125e-4, 5000)
    rainbow = manager.compose(["agent=minatar_rainbow", "env=minatar_seaquest"])
    assert rainbow["replay"]["prioritized"]
    assert (rainbow["agent"]["n_step"], rainbow["agent"]["v_max"], rainbow["agent"]["noisy"]) == (3, 100.0, True)
    assert rainbow["preset"] == preset
    assert planned_spec(rainbow).obs.dtype == np.bool_


def test_without_the_package_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "minatar", None)
    with pytest.raises(UsageError, match=r"retrograd\[minatar\]"):
        EnvironmentFactory().create_vec("MinAtar/Freeway-v1")


def test_a_misspelt_game_is_answered_with_the_nearest():
    with pytest.raises(UsageError, match="MinAtar/Breakout-v1"):
        EnvironmentFactory().create_vec("MinAtar/Breakot-v1")


@pytest.mark.parametrize("name", GAMES)
def test_a_game_goes_on_exactly_where_it_was_saved(name):
    """Through several games: the sticky action of a new game must not remember the last one."""
    pytest.importorskip("minatar")
    rng = np.random.default_rng(0)
    rows = EnvironmentFactory().create_vec(f"MinAtar/{name}-v1", num_envs=2, seed=3)
    assert len(rows.spec.action.names) == rows.spec.action.n
    games = 0

    def play(env, actions):
        nonlocal games
        seen = []
        for action in actions:
            env.send(action)
            answer = env.recv()
            games += len(answer.episodes)
            seen.append((answer.next_obs.copy(), answer.reward, answer.terminated))
        return seen

    actions = rng.integers(rows.spec.action.n, size=(400, 2))
    play(rows, actions)
    assert games > 2 or name == "Freeway"  # whose games last 2,500 steps
    saved = rows.snapshot()
    twin = EnvironmentFactory().create_vec(f"MinAtar/{name}-v1", num_envs=2, seed=9)
    twin.restore(saved)
    first, second = play(rows, actions), play(twin, actions)
    assert all(np.array_equal(a, b) for one, other in zip(first, second, strict=True) for a, b in zip(one, other, strict=True))  # noqa: E501 # fmt: skip
    assert any(obs.any() for obs, _, _ in first)


def test_pictures_are_bytes_of_the_board():
    pytest.importorskip("minatar")
    env = EnvironmentFactory().create_env("MinAtar/Seaquest-v0", render_mode="rgb_array")
    board, _ = env.reset(seed=0)
    assert env.action_space.n == 6
    picture = env.render()
    assert (picture.shape, picture.dtype) == ((160, 160, 3), np.uint8)
    assert np.array_equal(picture[8::16, 8::16].any(axis=2), board.any(axis=2))


def test_builder_makes_the_game_by_its_short_name():
    pytest.importorskip("minatar")
    envs = Builder(manager.compose(["agent=minatar_dqn", "env=minatar_space_invaders"])).environments()
    assert envs.spec.obs.shape == (6, 10, 10)
    assert envs.num_envs == 8
