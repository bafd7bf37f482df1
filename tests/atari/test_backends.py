"""Native and Gymnasium rows show the same games."""

import cv2
import gymnasium
import numpy as np
import pytest

from retrograd.core.errors import UsageError
from retrograd.envs.factory import EnvironmentFactory
from retrograd.envs.games import game_names
from retrograd.envs.native import NativeAtari
from retrograd.envs.protocol import AtariProtocol
from retrograd.envs.watchdog import Patience

FIELDS = ("obs", "next_obs", "reward", "terminated", "truncated", "reset")


@pytest.mark.parametrize("game", ["pong", "breakout", "space_invaders", "qbert"])
@pytest.mark.parametrize(("repeat", "pool"), [(4, True), (2, True), (4, False)])
def test_backends_agree_frame_for_frame(game, repeat, pool):
    """Seeds mean different things to the two, so this holds without random starts and sticky actions."""
    shown = {"action_repeat": repeat, "max_pool": pool}
    protocol = AtariProtocol(noop_max=0, terminal_on_life_loss=True, max_episode_frames=1201, **shown)
    factory = EnvironmentFactory(protocol)
    native, python = (
        factory.create_vec(game, num_envs=2, seed=seed, backend=backend)
        for seed, backend in ((1, "native"), (2, "gymnasium"))
    )
    assert native.spec == python.spec
    assert np.array_equal(native.observe(), python.observe())
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(500):
        action = rng.integers(0, native.spec.action.n, 2)
        native.send(action)
        python.send(action)
        a, b = native.recv(), python.recv()
        for name in FIELDS:
            assert np.array_equal(getattr(a, name), getattr(b, name)), name
        assert a.episodes == b.episodes
        ends += int(a.reset.sum())
    assert ends or repeat == 2
    native.close()
    python.close()


def test_without_pooling_the_last_frame_is_shown_as_version_5_shows_it():
    """A frame of ALE/Pong-v5, resized, is our newest one."""
    protocol = AtariProtocol(noop_max=0, fire_reset=False, max_pool=False)
    ours = EnvironmentFactory(protocol).create_vec("pong", num_envs=1, seed=1)
    theirs = gymnasium.make("ALE/Pong-v5", obs_type="grayscale", repeat_action_probability=0.0)
    theirs.reset(seed=1)
    for action in (2, 2, 3, 3, 3, 0, 2, 3):
        ours.send(np.array([action]))
        seen = ours.recv().obs[0, -1]
        frame = theirs.step(action)[0]
        assert np.array_equal(seen, cv2.resize(frame, (84, 84), interpolation=cv2.INTER_AREA))
    ours.close()


def test_emulators_own_episodic_life_restarts_the_game():
    """Why the lives are compared here: the emulator's switch never shows a second life."""
    from ale_py.vector_env import AtariVectorEnv

    env = AtariVectorEnv("breakout", 1, episodic_life=True, noop_max=0)
    env.reset(seed=np.array([1]))
    lives = set()
    for _ in range(200):
        _, _, terminated, _, info = env.step(np.array([1]))
        if not terminated[0]:
            lives.add(int(info["lives"][0]))
    assert lives == {5}


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(8))
def test_every_game_plays_by_name(chunk):
    """REQ ENV-6."""
    names = game_names()[chunk::8]
    assert len(names) == 13
    for name in names:
        env = NativeAtari(
            name, 1, AtariProtocol(noop_max=0), seed=0, threads=1, patience=Patience(watchdog_seconds=None)
        )
        for action in (0, env.spec.action.n - 1, 0):
            env.send(np.array([action]))
            step = env.recv()
        assert step.obs.shape == (1, 4, 84, 84)
        assert env.spec.name == name
        env.close()


def test_real_valued_actions_play():
    protocol = AtariProtocol(continuous_actions=True, noop_max=4)
    env = EnvironmentFactory(protocol).create_vec("breakout", num_envs=2, seed=0)
    assert env.spec.action.low.shape == (3,)
    env.send(np.array([[1.0, 0.0, 1.0], [0.5, 9.0, 0.0]]))
    assert env.recv().obs.shape == (2, 4, 84, 84)
    with pytest.raises(UsageError, match="finite"):
        env.send(np.full((2, 3), np.nan))
    with pytest.raises(UsageError, match="gymnasium"):
        EnvironmentFactory(protocol).create_vec("breakout", backend="native")


def test_worker_processes_show_the_same_games():
    factory = EnvironmentFactory(AtariProtocol(repeat_action_probability=0.25))
    apart = factory.create_vec("breakout", num_envs=2, seed=3, workers=True)
    here = factory.create_vec("breakout", num_envs=2, seed=3, backend="gymnasium")
    for action in [1, 2, 3, 0] * 10:
        for env in (apart, here):
            env.send(np.full(2, action))
        a, b = apart.recv(), here.recv()
        assert np.array_equal(a.obs, b.obs)
        assert np.array_equal(a.reward, b.reward)
    apart.close()


def test_viewer_shows_thirty_pictures_a_second():
    viewer = EnvironmentFactory(AtariProtocol(noop_max=0)).create_viewer("pong", seed=0)
    viewer.pop_frames()
    for _ in range(15):
        viewer.send(np.array([0]))
        viewer.recv()
    frames = viewer.pop_frames()
    assert viewer.fps == 30
    assert len(frames) == 30  # 15 steps are 60 frames, one second
    assert frames[0].shape == (210, 160, 3)
    assert viewer.pop_frames() == []


def test_single_environment_has_the_same_preprocessing():
    factory = EnvironmentFactory(AtariProtocol(noop_max=0))
    env = factory.create_env("BreakoutNoFrameskip-v4")
    rows = factory.create_vec("breakout", seed=0)
    obs, _ = env.reset(seed=0)
    assert np.array_equal(obs, rows.observe()[0])
    for action in [1, 2, 3] * 30:
        obs, reward, terminated, _, info = env.step(action)
        rows.send(np.array([action]))
        step = rows.recv()
        assert np.array_equal(obs, step.next_obs[0])
        assert reward == step.reward[0]
        if terminated:
            break
    assert info["lives"] >= 0


def test_raw_environment_object_is_preprocessed_only_without_its_own_skip():
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    with pytest.raises(UsageError, match="frameskip=1"):
        EnvironmentFactory().create_vec(gymnasium.make("ALE/Pong-v5"))
    rows = EnvironmentFactory().create_vec(gymnasium.make("ALE/Pong-v5", frameskip=1))
    assert rows.observe().shape == (1, 4, 84, 84)
