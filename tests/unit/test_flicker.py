"""Frames blanked at random: which ones, in stacks too, in training and in evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from retrograd.build import Builder, describe_protocol
from retrograd.config import ConfigManager, from_saved
from retrograd.core.errors import UsageError
from retrograd.envs.factory import EnvironmentFactory
from retrograd.envs.flicker import Flicker
from retrograd.envs.toys.bit_flip import BitFlip
from retrograd.envs.toys.catch import CatchScreen
from retrograd.envs.vector import GymVec

N = 4


def screens(stack: int = 1, seed: int = 0, rows: int = N) -> Any:
    factory = EnvironmentFactory()
    return factory.create_vec(
        CatchScreen, num_envs=rows, seed=seed, protocol=factory.protocol.__class__(frame_stack=stack)
    )


def frames_of(env: Any, steps: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    rng, seen = np.random.default_rng(0), []
    for _ in range(steps):
        env.send(rng.integers(3, size=N))
        step = env.recv()
        seen.append((np.array(step.obs), np.array(step.next_obs), step.reset))
    return seen


def test_frames_are_whole_or_blank_as_often_as_asked() -> None:
    flickering, clear = Flicker(screens(), 0.3, np.random.default_rng(1)), screens()
    blank = []
    for (obs, next_obs, reset), (true_obs, true_next, _) in zip(
        frames_of(flickering, 200), frames_of(clear, 200), strict=True
    ):
        for row in range(N):
            blank.append(not next_obs[row].any())
            assert np.array_equal(next_obs[row], true_next[row]) or blank[-1]
            assert np.array_equal(obs[row], true_obs[row]) or not obs[row].any()
            if not reset[row]:
                assert np.array_equal(obs[row], next_obs[row])
    assert 0.25 < np.mean(blank) < 0.35


def test_a_frame_stays_what_it_was_while_it_moves_through_the_stack() -> None:
    """A replay that keeps single frames builds the same stacks again."""
    env = Flicker(screens(stack=3), 0.5, np.random.default_rng(2))
    before, moved = np.array(env.observe()), 0
    for obs, next_obs, _ in frames_of(env, 60):
        assert np.array_equal(next_obs[:, :-1], before[:, 1:])
        moved += int((~next_obs[:, -1].reshape(N, -1).any(1)).sum())
        before = obs
    assert 0.35 < moved / (60 * N) < 0.65


def test_equal_seeds_flicker_alike_and_a_snapshot_goes_on_exactly() -> None:
    def make() -> Flicker:
        return Flicker(screens(stack=2), 0.5, np.random.default_rng(3))

    first, second = make(), make()
    for (one, _, _), (other, _, _) in zip(frames_of(first, 30), frames_of(second, 30), strict=True):
        assert np.array_equal(one, other)
    third = Flicker(screens(stack=2), 0.5, np.random.default_rng(99))
    third.restore(first.snapshot())
    assert np.array_equal(third.observe(), first.observe())
    for (one, _, _), (other, _, _) in zip(frames_of(first, 30), frames_of(third, 30), strict=True):
        assert np.array_equal(one, other)


def test_vectors_flicker_too_and_several_arrays_do_not() -> None:
    env = Flicker(EnvironmentFactory().create_vec("CartPole-v1", num_envs=64), 0.5, np.random.default_rng(0))
    blank = ~np.asarray(env.observe()).any(1)
    assert 0.2 < blank.mean() < 0.8
    with pytest.raises(UsageError, match="needs one array per observation"):
        Flicker(GymVec([lambda: BitFlip(4)], seed=0), 0.5, np.random.default_rng(0))
    with pytest.raises(UsageError, match=r"flicker_probability is 1\.0"):
        Flicker(screens(rows=1), 1.0, np.random.default_rng(0))


def test_training_evaluation_and_pictures_flicker_by_the_config() -> None:
    config = ConfigManager(None).compose(
        ["agent=recurrent_ppo", "env=catch_screen", "env_protocol.flicker_probability=0.5", "training.num_envs=32"]
    )
    builder = Builder(config)
    for envs in (builder.environments(), builder.evaluation_environments(7), builder.viewer(7)):
        assert isinstance(envs, Flicker)
        envs.close()
    first, again = builder.evaluation_environments(7), builder.evaluation_environments(7)
    assert np.array_equal(first.observe(), again.observe())
    assert "frames blank with probability 0.5" in describe_protocol(config)


def test_runs_from_before_do_not_flicker() -> None:
    saved: Any = dict(ConfigManager(None).compose(["agent=ppo"]).values)
    saved["env_protocol"] = {key: v for key, v in saved["env_protocol"].items() if key != "flicker_probability"}
    assert from_saved(saved)["env_protocol"]["flicker_probability"] == 0.0
    with pytest.raises(UsageError, match=r"env_protocol.flicker_probability=1 must be a number from 0 to 0\.999"):
        ConfigManager(None).compose(["env_protocol.flicker_probability=1"])
