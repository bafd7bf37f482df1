"""Going on exactly where a snapshot was taken, in a fresh instance (REQ ENV-5)."""

import numpy as np
import pytest

from retrograd.core.errors import CheckpointError
from retrograd.envs.factory import EnvironmentFactory
from retrograd.envs.native import NativeAtari
from retrograd.envs.protocol import AtariProtocol

STICKY = AtariProtocol(repeat_action_probability=0.25, terminal_on_life_loss=True)
FIELDS = ("obs", "next_obs", "reward", "terminated", "truncated", "reset")


def actions(env, steps, seed):
    return np.random.default_rng(seed).integers(0, env.spec.action.n, (steps, env.num_envs))


def drive(env, plan):
    answers = []
    for action in plan:
        env.send(action)
        answers.append(env.recv())
    return answers


def assert_same(left, right):
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        for name in FIELDS:
            assert np.array_equal(getattr(a, name), getattr(b, name)), name
        assert a.episodes == b.episodes


@pytest.mark.parametrize(
    "game", ["qbert", *(pytest.param(game, marks=pytest.mark.nightly) for game in ("breakout", "pong"))]
)
def test_native_rows_go_on_identically(game):
    """Several games per row since the last seeded reset, rows with pasts of different lengths."""

    def make():
        return NativeAtari(game, 3, STICKY, seed=3, max_episode_steps=110, reseed_after_steps=250)

    first = make()
    drive(first, actions(first, 400, 1))
    saved = first.snapshot()
    lengths = saved["journal"]["length_steps"]
    assert lengths.max() > 0
    later = actions(first, 300, 2)
    expected = drive(first, later)

    second = make()
    second.restore(saved)
    assert np.array_equal(second.observe(), saved["obs"])
    assert_same(drive(second, later), expected)
    assert any(step.reset.any() for step in expected)
    first.close()
    second.close()


def test_rows_are_reseeded_at_different_times_and_restored():
    first = NativeAtari("breakout", 3, STICKY, seed=3, reseed_after_steps=60)
    drive(first, actions(first, 300, 1))
    saved = first.snapshot()
    assert len(set(saved["journal"]["length_steps"].tolist())) > 1
    assert saved["journal"]["seeds_used"].min() >= 1
    assert len(saved["journal"]["actions"]) == saved["journal"]["length_steps"].sum()
    second = NativeAtari("breakout", 3, STICKY, seed=99, threads=1)
    second.restore(saved)
    later = actions(first, 150, 2)
    assert_same(drive(second, later), drive(first, later))
    first.close()
    second.close()


def test_taking_a_snapshot_changes_nothing():
    runs = []
    for save in (False, True):
        env = NativeAtari("breakout", 2, STICKY, seed=4, reseed_after_steps=40)
        answers = []
        for action in actions(env, 200, 1):
            answers += drive(env, [action])
            if save:
                env.snapshot()
        runs.append(answers)
        env.close()
    assert_same(*runs)


def test_restored_run_saves_the_same_again():
    first = NativeAtari("pong", 1, STICKY, seed=4)
    drive(first, actions(first, 50, 1))
    saved = first.snapshot()
    second = NativeAtari("pong", 1, STICKY, seed=0)
    second.restore(saved)
    again = second.snapshot()
    assert np.array_equal(again["journal"]["actions"], saved["journal"]["actions"])
    assert np.array_equal(again["meter"]["score"], saved["meter"]["score"])


@pytest.mark.parametrize("game", ["qbert", "space_invaders"])
def test_gymnasium_atari_rows_go_on_identically(game):
    """Qbert is a game whose cloned emulator state does not continue exactly; playing again does."""
    factory = EnvironmentFactory(STICKY)

    def make(seed):
        return factory.create_vec(game, num_envs=2, seed=seed, backend="gymnasium", max_episode_steps=60)

    first = make(1)
    drive(first, actions(first, 130, 1))
    saved = first.snapshot()
    later = actions(first, 100, 2)
    expected = drive(first, later)
    second = make(2)
    second.restore(saved)
    assert_same(drive(second, later), expected)


def test_snapshot_of_another_game_or_protocol_is_refused():
    saved_env = NativeAtari("pong", 1, STICKY, seed=4)
    drive(saved_env, actions(saved_env, 20, 1))
    saved = saved_env.snapshot()
    with pytest.raises(CheckpointError, match=r"pong.*breakout"):
        NativeAtari("breakout", 1, STICKY, seed=4).restore(saved)
    with pytest.raises(CheckpointError, match="1 rows, these have 2"):
        NativeAtari("pong", 2, STICKY, seed=4).restore(saved)
    with pytest.raises(CheckpointError, match="could not be played again"):
        NativeAtari("pong", 1, AtariProtocol(action_repeat=2), seed=4).restore(saved)
