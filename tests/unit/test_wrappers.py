"""Wrappers round rows: stacks, statistics, freezing, exact continuation (REQ ENV-8)."""

import gymnasium
import numpy as np
import pytest

from retrograd.core.errors import UsageError
from retrograd.envs.factory import EnvironmentFactory
from retrograd.envs.toys.bit_flip import BitFlip
from retrograd.envs.toys.catch import CatchScreen
from retrograd.envs.toys.chains import Counter
from retrograd.envs.vector import GymVec
from retrograd.envs.wrappers import (
    BaseWrapper,
    FrameStack,
    NormalizeObservations,
    NormalizeRewards,
    RunningMeanStd,
)


def counter(rows=2, seed=0):
    return GymVec([Counter] * rows, seed=seed, name="counter")


def advance(env, steps=1):
    for _ in range(steps):
        env.send(np.zeros(env.num_envs, np.int64))
        step = env.recv()
    return step


def test_running_statistics_equal_those_of_everything_at_once():
    data = np.random.default_rng(0).normal(3.0, 2.0, (1000, 3))
    rms = RunningMeanStd((3,))
    for batch in np.split(data, [1, 8, 500, 500, 900]):
        rms.update(batch)
    assert rms.count == 1000
    np.testing.assert_allclose(rms.mean, data.mean(axis=0))
    np.testing.assert_allclose(rms.var, data.var(axis=0))


def test_base_wrapper_forwards_everything():
    plain, wrapped = counter(), BaseWrapper(counter())
    assert wrapped.spec == plain.spec
    for _ in range(9):
        a, b = advance(plain), advance(wrapped)
        assert np.array_equal(a.obs, b.obs)
        assert a.episodes == b.episodes
    assert np.array_equal(plain.observe(), wrapped.observe())


def test_frame_stack_is_zeros_then_newest_and_begins_anew_at_resets():
    env = FrameStack(counter(1), 3)
    assert env.spec.obs.shape == (3, 1)
    assert env.spec.frame_stack == 3
    assert env.observe()[0, :, 0].tolist() == [0, 0, 0]
    seen = [advance(env) for _ in range(6)]
    assert [s.next_obs[0, :, 0].tolist() for s in seen[:4]] == [[0, 0, 1], [0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert seen[3].obs[0, :, 0].tolist() == [0, 0, 100]
    assert seen[4].next_obs[0, :, 0].tolist() == [0, 100, 101]
    held = seen[0].obs.copy()
    advance(env, 5)
    assert np.array_equal(seen[0].obs, held)


def test_normalized_observations_have_mean_zero_and_freeze():
    env = NormalizeObservations(EnvironmentFactory().create_vec("CartPole-v1", num_envs=4, seed=0))
    rng = np.random.default_rng(0)
    seen, raw = [env.env.observe()], 0
    for _ in range(200):
        env.send(rng.integers(0, 2, 4))
        step = env.recv()
        seen.append(env.env.observe())
        raw += int(step.reset.sum())
        going = ~step.reset
        assert np.array_equal(step.obs[going], step.next_obs[going])
    assert env.rms.count == 4 * 201 + raw
    assert np.abs(step.obs).max() <= 10
    env.freeze()
    before = env.state_dict()
    advance(env, 3)
    assert np.array_equal(env.rms.mean, before["statistics"]["mean"])
    fresh = NormalizeObservations(EnvironmentFactory().create_vec("CartPole-v1", num_envs=4, seed=0))
    fresh.load_state_dict(before)
    assert np.array_equal(fresh.rms.var, env.rms.var)
    expected = (fresh.env.observe() - env.rms.mean) / np.sqrt(env.rms.var + 1e-8)
    np.testing.assert_allclose(fresh.observe(), np.clip(expected, -10, 10), rtol=1e-5)


def test_normalized_rewards_keep_sign_and_raw_scores():
    env = NormalizeRewards(counter(), gamma=0.5)
    returns, values, stats = np.zeros(2), [], RunningMeanStd()
    for _ in range(20):
        step = advance(env)
        returns = returns * 0.5 + 1.0
        stats.update(returns)
        values.append(step.reward[0])
        assert step.reward[0] == pytest.approx(min(1.0 / np.sqrt(stats.var + 1e-8), 10.0), rel=1e-5)
        returns[step.reset] = 0.0
        assert all(episode.score == 4.0 for episode in step.episodes)
    assert values[-1] != 1.0


def test_freeze_and_statistics_reach_inner_wrappers():
    env = NormalizeRewards(NormalizeObservations(counter()))
    advance(env, 6)
    env.freeze()
    state = env.state_dict()
    advance(env, 6)
    assert env.env.frozen
    assert env.state_dict()["inner"]["statistics"]["count"] == state["inner"]["statistics"]["count"]
    fresh = NormalizeRewards(NormalizeObservations(counter()))
    fresh.load_state_dict(state)
    assert np.array_equal(fresh.env.rms.mean, env.env.rms.mean)


def test_wrapped_rows_go_on_identically():
    def make(seed):
        rows = EnvironmentFactory().create_vec("cartpole", num_envs=2, seed=seed)
        return NormalizeRewards(NormalizeObservations(FrameStack(rows, 2)))

    first = make(0)
    advance(first, 30)
    saved = first.snapshot()
    second = make(1)
    second.restore(saved)
    assert np.array_equal(first.observe(), second.observe())
    for _ in range(40):
        a, b = advance(first), advance(second)
        assert np.array_equal(a.obs, b.obs)
        assert np.array_equal(a.next_obs, b.next_obs)
        assert np.array_equal(a.reward, b.reward)


def test_a_vector_of_bytes_can_be_normalized():
    class Memory(gymnasium.Env):
        """What a console remembers."""

        observation_space = gymnasium.spaces.Box(0, 255, (4,), np.uint8)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.np_random.integers(100, 200, 4).astype(np.uint8), {}

        def step(self, action):
            return self.np_random.integers(100, 200, 4).astype(np.uint8), 0.0, False, False, {}

    env = NormalizeObservations(GymVec([Memory] * 8, seed=0))
    for _ in range(20):
        env.send(np.zeros(8, np.int64))
        obs = env.recv().obs
    assert env.spec.obs.dtype == np.float32
    assert abs(obs.mean()) < 1
    assert 0.5 < obs.std() < 2


def test_unsuitable_environments_are_refused():
    goals = GymVec([BitFlip], seed=0, name="bits")
    with pytest.raises(UsageError, match="desired_goal"):
        FrameStack(goals, 2)
    with pytest.raises(UsageError, match="images"):
        NormalizeObservations(GymVec([CatchScreen], seed=0))
    with pytest.raises(UsageError, match="already"):
        FrameStack(FrameStack(counter(), 2), 2)
