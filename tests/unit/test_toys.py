"""The small tasks keep their promises."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from retrograd.envs.factory import EnvironmentFactory
from retrograd.envs.protocol import AtariProtocol
from retrograd.envs.toys import _ENTRY_POINTS, register_toys
from retrograd.envs.toys.bit_flip import BitFlip
from retrograd.envs.toys.catch import Catch, CatchScreen
from retrograd.envs.toys.chains import Chain
from retrograd.envs.toys.deep_sea import DeepSea
from retrograd.envs.toys.memory import MemoryChain


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("env_id", _ENTRY_POINTS)
def test_keeps_the_gymnasium_contract(env_id):
    register_toys()
    register_toys()
    env = gymnasium.make(env_id)
    if "Counter" not in env_id:  # its episodes differ by design when reset without a seed
        check_env(env.unwrapped if "NoVel" not in env_id else env, skip_render_check=True)


def play(env, policy, seed):
    obs, _ = env.reset(seed=seed)
    total, steps, ended = 0.0, 0, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(policy(obs))
        total, steps, ended = total + reward, steps + 1, terminated or truncated
    return total, steps


def test_catch_is_won_by_following_the_ball():
    def follow(obs):
        board = obs.reshape(10, 5)
        paddle = int(board[-1].argmax())
        ball = int(board[:-1].sum(axis=0).argmax())
        return 1 + np.sign(ball - paddle)

    assert all(play(Catch(), follow, seed) == (1.0, 9) for seed in range(10))
    rng = np.random.default_rng(0)
    env = Catch()
    mean = np.mean([play(env, lambda _: rng.integers(3), seed)[0] for seed in range(400)])
    assert -0.75 < mean < -0.4


def test_catch_screen_goes_through_the_atari_path():
    """The ball flickers, so it is seen only because two frames are pooled."""
    rows = EnvironmentFactory(AtariProtocol()).create_vec("catch_screen", num_envs=2, seed=0)
    assert rows.spec.obs.shape == (4, 84, 84)
    assert rows.spec.frames_per_step == 4
    lengths = []
    for _ in range(40):
        newest = rows.observe()[:, -1]
        assert (newest.max(axis=(1, 2)) > 200).all()  # the ball is white, the paddle darker
        ball = (newest > 200).any(axis=1).argmax(axis=1)
        paddle = (newest[:, -3] > 100).argmax(axis=1)
        rows.send(np.where(ball > paddle + 2, 1, np.where(ball < paddle - 2, 2, 0)))
        step = rows.recv()
        for episode in step.episodes:
            assert episode.score == 1.0
            lengths.append((episode.length_steps, episode.length_frames))
    assert set(lengths) == {(9, 33)}


def test_catch_screen_shows_the_ball_on_odd_ticks_only():
    env = CatchScreen()
    frame, _ = env.reset(seed=0)
    assert (frame == 236).any()
    shown = [bool((env.step(0)[0] == 236).any()) for _ in range(12)]
    assert shown == [True, False] * 6


def test_pictures_of_a_flickering_screen_show_the_ball():
    viewer = EnvironmentFactory().create_viewer("catch_screen", seed=0)
    for _ in range(8):
        viewer.send(np.array([0]))
        viewer.recv()
    frames = viewer.pop_frames()
    assert len(frames) == 16
    assert all((frame == 236).any() for frame in frames)


def test_memory_chain_needs_the_first_observation():
    env = MemoryChain(5)
    for seed in range(6):
        obs, _ = env.reset(seed=seed)
        bit = int(obs[0] > 0)
        rewards = []
        for _ in range(6):
            obs, reward, terminated, _, _ = env.step(bit)
            assert obs[0] == 0.0
            rewards.append(reward)
        assert terminated
        assert rewards == [0.0] * 5 + [1.0]


def test_cartpole_without_velocities():
    rows = EnvironmentFactory().create_vec("cartpolenovel", seed=0)
    assert rows.observe().shape == (1, 2)


def test_deep_sea_pays_for_diving_right_all_the_way():
    env = DeepSea(6)

    def dive(obs):
        return int(env.right_action[np.unravel_index(int(obs.argmax()), (6, 6))])

    total, steps = play(env, dive, 0)
    assert steps == 6
    assert total == pytest.approx(0.99)
    assert play(env, lambda _: 0, 0)[0] < 0.5
    assert 0 < env.right_action.mean() < 1


def test_chain_tempts_with_the_near_reward():
    assert play(Chain(), lambda _: 0, 0) == (0.01, 1)
    assert play(Chain(), lambda _: 1, 0) == (1.0, 4)


def test_bit_flip_rewards_are_vectorized_and_reachable():
    env = BitFlip(6)
    obs, _ = env.reset(seed=1)
    wrong = np.flatnonzero(obs["observation"] != obs["desired_goal"])
    for bit in wrong:
        obs, reward, terminated, truncated, _ = env.step(int(bit))
    assert terminated
    assert not truncated
    assert reward == 0.0
    patterns = np.eye(6, dtype=np.float32)
    assert env.compute_reward(patterns, patterns[0]).tolist() == [0.0, -1.0, -1.0, -1.0, -1.0, -1.0]
