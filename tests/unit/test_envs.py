"""Rows of Gymnasium environments and the factory."""

from functools import partial

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from retrograd.core.errors import CheckpointError, UsageError
from retrograd.envs.factory import EnvironmentFactory, environment_names
from retrograd.envs.toys.bit_flip import BitFlip
from retrograd.envs.toys.chains import Counter
from retrograd.envs.vector import GymVec
from retrograd.envs.wrappers import BaseWrapper, FrameStack

# lengths differ, so that rows end while others go on
LENGTHS = (4, 3, 5)
COUNTERS = [partial(Counter, length) for length in LENGTHS]


def make_vecs():
    return {
        "in process": lambda: GymVec(COUNTERS, seed=0, name="counter"),
        "workers": lambda: GymVec(COUNTERS, seed=0, name="counter", workers=True),
        "wrapped": lambda: BaseWrapper(GymVec(COUNTERS, seed=0, name="counter")),
        "factory": lambda: EnvironmentFactory().create_vec(Counter, num_envs=3),
    }


@pytest.mark.parametrize("kind", make_vecs())
def test_counter_never_mixes_episodes(kind):
    """Every transition is from t to t + 1, and there are as many as there were steps."""
    env = make_vecs()[kind]()
    obs, transitions, ends = env.observe(), 0, []
    for _ in range(20):
        env.send(np.zeros(3, np.int64))
        step = env.recv()
        assert np.array_equal(step.next_obs, obs + 1)
        going = ~step.reset
        assert np.array_equal(step.obs[going], step.next_obs[going])
        assert (step.obs[step.reset] % 100 == 0).all()
        assert np.array_equal(step.reset, step.terminated | step.truncated)
        assert not (step.terminated & step.truncated).any()
        ends += [("terminated" if step.terminated[0] else "truncated")] if step.reset[0] else []
        transitions += len(step.reward)
        for episode in step.episodes:
            length = 4 if kind == "factory" else LENGTHS[episode.row]
            assert (episode.score, episode.length_steps, episode.length_frames) == (length, length, length)
        obs = step.obs
    assert transitions == 60
    assert ends == ["terminated", "truncated"] * 2 + ["terminated"]
    assert obs.dtype == np.float32
    env.close()


@pytest.mark.parametrize(
    ("name", "workers"),
    [("CartPole-v1", False), ("cartpole", True), ("Pendulum-v1", False), ("retrograd/MemoryChain-v0", False)],
)
def test_rows_go_on_identically(name, workers):
    factory = EnvironmentFactory()

    def drive(env, steps, seed):
        rng = np.random.default_rng(seed)
        for _ in range(steps):
            if hasattr(env.spec.action, "n"):
                env.send(rng.integers(0, env.spec.action.n, env.num_envs))
            else:
                env.send(rng.normal(size=(env.num_envs, *env.spec.action.low.shape)))
            yield env.recv()

    first = factory.create_vec(name, num_envs=3, seed=0, max_episode_steps=30, workers=workers)
    list(drive(first, 100, 0))
    saved = first.snapshot()
    second = factory.create_vec(name, num_envs=3, seed=9, max_episode_steps=30)
    second.restore(saved)
    for a, b in zip(drive(first, 100, 1), drive(second, 100, 1), strict=True):
        assert np.array_equal(a.obs, b.obs)
        assert np.array_equal(a.next_obs, b.next_obs)
        assert np.array_equal(a.reward, b.reward)
        assert np.array_equal(a.truncated, b.truncated)
        assert a.episodes == b.episodes
    first.close()


class Forgetful(Counter):
    """Seeds do not decide what it shows."""

    shown = 0

    def _observe(self):
        Forgetful.shown += 1
        return np.array([Forgetful.shown], np.float32)


def test_environment_that_does_not_repeat_itself_is_told_at_restore():
    env = GymVec([Forgetful], seed=0, name="forgetful")
    with pytest.raises(CheckpointError, match="did not repeat itself"):
        GymVec([Forgetful], seed=0, name="forgetful").restore(env.snapshot())


def test_vector_tasks_get_no_atari_step():
    """REQ ENV-7: no stack, no clip, no repeat, whatever the protocol says."""
    env = EnvironmentFactory().create_vec("Pendulum-v1", num_envs=2, seed=0)
    assert env.spec.obs.shape == (3,)
    assert env.spec.frame_stack is None
    assert env.spec.frames_per_step == 1
    env.send(np.zeros((2, 1), np.float32))
    assert not np.isin(env.recv().reward, (-1.0, 0.0, 1.0)).all()
    assert EnvironmentFactory().create_env("cartpole").observation_space.shape == (4,)


def test_time_limit_truncates_and_shows_the_successor():
    env = EnvironmentFactory().create_vec("Pendulum-v1", num_envs=1, seed=0)
    for _ in range(200):
        env.send(np.zeros((1, 1), np.float32))
        step = env.recv()
    assert step.truncated.all()
    assert not step.terminated.any()
    assert not np.array_equal(step.obs, step.next_obs)
    assert step.episodes[0].length_steps == 200


def test_dict_observations_stay_dicts():
    env = GymVec([BitFlip] * 2, seed=0, name="bits")
    assert set(env.spec.obs) == {"observation", "achieved_goal", "desired_goal"}
    env.send(np.array([0, 1]))
    step = env.recv()
    assert step.next_obs["observation"].shape == (2, 8)
    saved = env.snapshot()
    other = GymVec([BitFlip] * 2, seed=1, name="bits")
    other.restore(saved)
    assert np.array_equal(other.observe()["desired_goal"], step.obs["desired_goal"])


class Picture(gymnasium.Env):
    """Spaces that need converting: an image with channels last, actions from 1."""

    def __init__(self, observation_space=None):
        self.observation_space = observation_space or spaces.Box(0, 255, (12, 10, 3), np.uint8)
        self.action_space = spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert action in (1, 2)
        return self.observation_space.sample(), 0.0, False, False, {}


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(0, 255, (12, 10, 3), np.uint8), (3, 12, 10), np.uint8),
        (spaces.Box(0, 1, (10, 10, 4), bool), (4, 10, 10), np.bool_),
        (spaces.Box(-1, 1, (5,), np.float64), (5,), np.float32),
        (spaces.Discrete(7), (7,), np.float32),
        (spaces.MultiBinary(6), (6,), np.float32),
    ],
)
def test_observations_are_brought_into_one_form(space, shape, dtype):
    env = GymVec([lambda: Picture(space)] * 2, seed=0)
    env.send(np.array([0, 1]))
    obs = env.recv().obs
    assert env.spec.obs.shape == shape
    assert obs.shape == (2, *shape)
    assert obs.dtype == dtype == env.spec.obs.dtype


def test_unsupported_spaces_are_refused():
    with pytest.raises(UsageError, match="not supported"):
        GymVec([lambda: Picture(spaces.Tuple([spaces.Discrete(2)]))], seed=0)


@pytest.mark.parametrize(
    ("name", "near"),
    [("CartPol-v1", "CartPole"), ("cartpoel", "cartpole"), ("pnog", "pong"), ("Catchh", "catch"),
     ("ALE/Pongg-v5", "pong"), ("pendulun", "pendulum"), ("retrograd/Cach-v0", "Catch"), ("acrobat", "acrobot"),
     ("deepsee", "deepsea"), ("Brekout", "breakout")],
)  # fmt: skip
def test_wrong_name_gets_close_matches_from_everything(name, near):
    with pytest.raises(UsageError) as error:
        EnvironmentFactory().create_vec(name)
    assert near.lower() in str(error.value).lower().split("did you mean")[1]


def test_sources_of_every_kind():
    factory = EnvironmentFactory()
    assert factory.create_vec("CartPole-v1", num_envs=2).spec.name == "CartPole-v1"
    assert factory.create_vec(gymnasium.make("CartPole-v1")).num_envs == 1
    assert factory.create_vec(lambda: gymnasium.make("CartPole-v1"), num_envs=2).observe().shape == (2, 4)
    with pytest.raises(UsageError, match="function"):
        factory.create_vec(gymnasium.make("CartPole-v1"), num_envs=2)
    with pytest.raises(UsageError, match=r"not a gymnasium\.Env"):
        factory.create_vec(lambda: 3)
    with pytest.raises(UsageError, match="Did you mean 'native'"):
        factory.create_vec("pong", backend="natve")
    with pytest.raises(UsageError, match="backend='gymnasium'"):
        factory.create_vec("cartpole", backend="native")
    with pytest.raises(UsageError, match="num_envs is 0"):
        factory.create_vec("cartpole", num_envs=0)
    assert "cartpole" in environment_names()


@pytest.mark.parametrize("message", ['X is missing, run `pip install "gymnasium[box2d]"`'])
def test_missing_package_names_the_pip_line(monkeypatch, message):
    def refuse(*_, **__):
        raise gymnasium.error.DependencyNotInstalled(message)

    monkeypatch.setattr(gymnasium, "make", refuse)
    with pytest.raises(UsageError, match=r'pip install "gymnasium\[box2d\]"'):
        EnvironmentFactory().create_vec("CartPole-v1")


def test_viewer_of_a_vector_task_renders():
    viewer = EnvironmentFactory().create_viewer("catch", seed=0)
    viewer.send(np.array([0]))
    viewer.recv()
    frames = viewer.pop_frames()
    assert len(frames) == 2
    assert frames[0].shape == (160, 80, 3)
    assert viewer.fps == 5
    with pytest.raises(UsageError, match="capture=True"):
        EnvironmentFactory().create_vec("catch").pop_frames()


class Lives(gymnasium.Env):
    """Two lives of three steps."""

    def __init__(self):
        self.observation_space, self.action_space = spaces.Box(0, 99, (1,), np.float32), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {"lives": 2}

    def step(self, action):
        self.time += 1
        lives = 2 - self.time // 3
        return np.full(1, self.time, np.float32), 5.0, lives == 0, False, {"lives": lives}


def test_lost_life_ends_for_the_learner_only():
    env = FrameStack(GymVec([Lives], seed=0, reward_clip=True, terminal_on_life_loss=True), 2)
    steps = []
    for _ in range(6):
        env.send(np.zeros(1, np.int64))
        steps.append(env.recv())
    assert [bool(s.terminated[0]) for s in steps] == [False, False, True, False, False, True]
    assert [bool(s.reset[0]) for s in steps] == [False] * 5 + [True]
    assert steps[2].obs[0, :, 0].tolist() == [2.0, 3.0]
    assert steps[5].episodes[0].score == 30.0
    assert all(s.reward[0] == 1.0 for s in steps)


def test_a_captured_game_has_one_picture_more_than_steps_and_none_of_the_next():
    pytest.importorskip("pygame", reason="CartPole draws with pygame")
    viewer = EnvironmentFactory().create_viewer("CartPole-v1", seed=0)
    pictures, steps = list(viewer.pop_frames()), 0
    while True:
        viewer.send(np.zeros(1, np.int64))
        answer = viewer.recv()
        pictures += viewer.pop_frames()
        steps += 1
        if answer.episodes:
            break
    viewer.close()
    assert len(pictures) == steps + 1
    assert (pictures[0] != pictures[-1]).any()
