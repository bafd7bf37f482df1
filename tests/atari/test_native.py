"""The native Atari rows: true successors, raw scores, limits, determinism."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from ale_py.vector_env import AtariVectorEnv

from retrograd.core.errors import UsageError
from retrograd.envs.native import NativeAtari
from retrograd.envs.protocol import AtariProtocol
from retrograd.envs.watchdog import EXIT_CODE


def play(env, steps, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        env.send(rng.integers(0, env.spec.action.n, env.num_envs))
        yield env.recv()


@pytest.fixture
def native():
    opened = []

    def make(*args, **kwargs):
        opened.append(NativeAtari(*args, **{"seed": 1, "threads": 1, **kwargs}))
        return opened[-1]

    yield make
    for env in opened:
        env.close()


@pytest.mark.parametrize(
    "action",
    [np.array([0, 4]), np.array([-1, 0]), np.array([0, 0, 0]), np.array([0.0, 1.0]), np.array([True, False]), 3],
    ids=["too large", "negative", "too many", "real", "bool", "scalar"],
)
def test_bad_action_is_refused_and_the_games_go_on(native, action):
    """The emulator hangs for ever on an out-of-range action, so it must never see one."""
    env = native("breakout", 2)
    with pytest.raises(UsageError, match="action"):
        env.send(action)
    env.send(np.array([3, 1]))
    assert env.recv().reward.shape == (2,)


def test_watchdog_ends_a_hanging_process_with_a_dump():
    code = (
        "import numpy as np\n"
        "from retrograd.envs.native import NativeAtari\n"
        "from retrograd.envs.watchdog import Patience\n"
        "env = NativeAtari('pong', 1, seed=0, patience=Patience(watchdog_seconds=1.0))\n"
        "env._env.send(np.array([99]))\n"
        "env._in_flight = True\n"
        "env.recv()\n"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == EXIT_CODE
    assert "the emulator of pong (row 0) did not answer within 1 s" in ended.stderr
    assert "retrograd resume" in ended.stderr
    assert "in recv" in ended.stderr


def test_watchdog_does_not_count_the_time_a_process_was_stopped():
    code = (
        "import os, signal, time\n"
        "from retrograd.envs.watchdog import Watchdog\n"
        "with Watchdog('a call', 1.0):\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    time.sleep(0.4)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code])
    assert os.WIFSTOPPED(os.waitpid(child.pid, os.WUNTRACED)[1])
    time.sleep(1.5)
    os.kill(child.pid, signal.SIGCONT)
    assert child.wait(timeout=30) == 0


def test_emulator_has_no_state_to_save():
    """If this fails, snapshots may use the emulator's own state instead of playing again."""
    emulator = AtariVectorEnv("pong", 1).ale
    assert not [name for name in dir(emulator) if "clone" in name.lower() or "restore" in name.lower()]


def test_life_loss_ends_for_the_learner_and_the_game_goes_on(native):
    """REQ ENV-1: terminated without reset, the stack stays, the score spans all lives."""
    env = native("breakout", 1, AtariProtocol(terminal_on_life_loss=True))
    lost, frames_before, episodes = 0, 0, []
    for step in play(env, 400):
        if step.terminated[0] and not step.reset[0]:
            lost += 1
            assert np.array_equal(step.obs, step.next_obs)
            assert step.obs[0, 0].any()
            assert env._frames[0] > frames_before
        assert not step.truncated.any()
        assert step.reset[0] == bool(step.episodes)
        frames_before = env._frames[0]
        episodes += step.episodes
    assert lost >= 4 * len(episodes)
    assert episodes


def test_without_life_loss_only_game_over_terminates(native):
    env = native("breakout", 1, AtariProtocol(terminal_on_life_loss=False))
    for step in play(env, 300):
        assert np.array_equal(step.terminated, step.reset)


def test_successor_is_the_emulators_and_obs_begins_the_next_game(native):
    """The uninitialized final observation of automatic resets is never handed on."""
    env = native("breakout", 2, AtariProtocol(noop_max=0))
    before = env.observe()
    resets = 0
    for step in play(env, 300):
        assert np.array_equal(step.next_obs[:, :-1], before[:, 1:])
        for row in np.flatnonzero(step.reset):
            resets += 1
            assert not step.obs[row, :-1].any()
            assert step.obs[row, -1].any()
        going = ~step.reset
        assert np.array_equal(step.obs[going], step.next_obs[going])
        before = step.obs
    assert resets


def test_arrays_handed_out_are_never_overwritten(native):
    env = native("pong", 2)
    held = [(env.observe(), env.observe().copy())]
    for step in play(env, 40):
        held += [(step.obs, step.obs.copy()), (step.reward, step.reward.copy())]
    assert all(np.array_equal(array, copy) for array, copy in held)
    assert held[0][0].flags.c_contiguous


def test_clipped_reward_and_raw_score(native):
    """REQ ENV-2: the learner sees signs, the log sees points."""
    clipped = native("space_invaders", 2, AtariProtocol(reward_clip=True))
    raw = native("space_invaders", 2, AtariProtocol(reward_clip=False))
    totals, score_of_first = np.zeros(2), None
    for a, b in zip(play(clipped, 1200), play(raw, 1200), strict=True):
        assert np.array_equal(a.reward, np.sign(b.reward))
        assert a.reward.dtype == np.float32
        assert a.episodes == b.episodes
        totals += b.reward
        if a.episodes and score_of_first is None:
            first = a.episodes[0]
            score_of_first = totals[first.row]
            assert first.score == score_of_first
            assert first.length_frames >= first.length_steps * 4 - 3
    assert score_of_first is not None
    assert score_of_first > 5


def test_frame_cap_truncates_with_the_true_successor(native):
    cap = AtariProtocol(noop_max=0, max_episode_frames=81)  # FIRE takes one frame, then 20 steps of 4
    short, long = native("pong", 1, cap), native("pong", 1, AtariProtocol(noop_max=0))
    steps = list(zip(play(short, 20), play(long, 20), strict=True))
    assert not any(a.reset.any() for a, _ in steps[:-1])
    a, b = steps[-1]
    assert a.truncated.tolist() == [True]
    assert a.terminated.tolist() == [False]
    assert a.reset.tolist() == [True]
    assert np.array_equal(a.next_obs, b.next_obs)
    assert a.episodes[0].length_steps == 20
    assert a.episodes[0].length_frames == 81
    assert not a.obs[0, :-1].any()


def test_step_limit_truncates(native):
    env = native("pong", 2, max_episode_steps=7)
    truncated = [step.truncated.tolist() for step in play(env, 14)]
    assert truncated == ([[False, False]] * 6 + [[True, True]]) * 2


def test_noop_max_bounds_the_frames_before_the_first_decision(native):
    env = native("freeway", 2, AtariProtocol(noop_max=3), max_episode_steps=1)
    frames = set()
    for _ in play(env, 20):
        frames |= set(env._frames.tolist())
    assert frames == {0, 1, 2, 3}


def test_thread_count_changes_nothing(native):
    runs = [native("breakout", 3, AtariProtocol(repeat_action_probability=0.25), threads=threads) for threads in (1, 2)]
    for a, b in zip(play(runs[0], 250), play(runs[1], 250), strict=True):
        assert np.array_equal(a.obs, b.obs)
        assert a.episodes == b.episodes


def test_negative_seed_is_refused(native):
    with pytest.raises(UsageError, match="seed is -1"):
        native("pong", 1, seed=-1)


def test_caller_may_reuse_its_action_array(native):
    first, second = native("breakout", 1), native("breakout", 1)
    reused = np.zeros(1, np.int64)
    for action in [1, 2, 3, 2] * 10:
        reused[0] = action
        first.send(reused)
        reused[0] = 0
        second.send(np.array([action]))
        assert np.array_equal(first.recv().obs, second.recv().obs)


def test_seeds_decide(native):
    sticky = AtariProtocol(repeat_action_probability=0.25)
    first, same, other = (
        [step.obs for step in play(native("breakout", 2, sticky, seed=seed), 60)] for seed in (5, 5, 6)
    )
    assert all(map(np.array_equal, first, same))
    assert not all(map(np.array_equal, first, other))


def test_rows_differ_from_each_other(native):
    last = [step.obs for step in play(native("pong", 2), 30)][-1]
    assert not np.array_equal(last[0], last[1])


@pytest.mark.parametrize(
    ("setting", "shape"), [({"frame_stack": 1}, (1, 84, 84)), ({"screen_size": 42, "frame_stack": 3}, (3, 42, 42))]
)
def test_spec_matches_what_is_handed_out(native, setting, shape):
    env = native("ms-pacman", 1, AtariProtocol(**setting))
    assert env.spec.obs.shape == shape == env.observe().shape[1:]
    assert env.spec.frame_stack == shape[0]
    assert env.spec.name == "ms_pacman"
    assert env.spec.action.names[0] == "NOOP"


def test_order_of_calls_is_checked(native):
    env = native("pong", 1)
    with pytest.raises(RuntimeError, match="without send"):
        env.recv()
    env.send(np.array([0]))
    with pytest.raises(RuntimeError, match="twice"):
        env.send(np.array([0]))
    with pytest.raises(RuntimeError, match="in flight"):
        env.snapshot()
    env.recv()
