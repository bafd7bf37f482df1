"""Relabeling: goals of the same game, in both observations, judged anew."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.replay import Hindsight, RawStorage, Replay, Uniform

PART = ArraySpec((1,), np.dtype(np.float32))
SPEC = EnvSpec("goal", {"observation": PART, "achieved_goal": PART, "desired_goal": PART}, DiscreteActions(2))
LENGTHS = (5, 9)


def reward(achieved: Any, desired: Any) -> Any:
    return np.where((achieved == desired).all(axis=1), np.float32(0), np.float32(-1))


def reached(achieved: Any, desired: Any) -> Any:
    return (achieved == desired).all(axis=1)


def filled(steps: int = 60, capacity: int = 60, **options: Any) -> Replay[Any]:
    """The achieved goal is 100 × game + 1000 × row + the time in the game; the pursued goal is -1."""
    reader = Hindsight(reward, np.random.default_rng(1), reached=reached, **options)
    replay = Replay(RawStorage(SPEC, capacity, 2), Uniform(), reader, np.random.default_rng(0))
    time, game = np.zeros(2, int), np.zeros(2, int)
    for _ in range(steps):
        reset = time + 1 == np.array(LENGTHS)
        now = (1000 * np.arange(2) + 100 * (game % 9) + time)[:, None].astype(np.float32)
        goal = np.full((2, 1), -1, np.float32)
        died = reset & (game % 2 == 1)
        replay.add(Step(
            {"observation": now, "achieved_goal": now, "desired_goal": goal}, np.zeros(2, int),
            np.full(2, -1, np.float32), died, reset & ~died, reset,
            {"observation": now + 1, "achieved_goal": now + 1, "desired_goal": goal},
        ))  # fmt: skip
        time, game = np.where(reset, 0, time + 1), game + reset
    replay.check_valid()
    return replay


@pytest.mark.parametrize("strategy", ["final", "future", "episode"])
def test_goals_come_from_the_same_game(strategy: str) -> None:
    """REQ REPLAY-6."""
    replay = filled(strategy=strategy)
    batch = replay.sample(4000, step=0)
    now, goal = batch.obs["achieved_goal"][:, 0].numpy(), batch.obs["desired_goal"][:, 0].numpy()
    successor = batch.next_obs["achieved_goal"][:, 0].numpy()
    assert np.array_equal(goal, batch.next_obs["desired_goal"][:, 0].numpy())
    relabeled = goal != -1
    assert relabeled.mean() == pytest.approx(0.8, abs=0.03)
    now, goal, successor = now[relabeled], goal[relabeled], successor[relabeled]
    assert np.array_equal(now // 100, goal // 100)
    length = np.array(LENGTHS)[(now // 1000).astype(int)]
    if strategy == "final":
        assert np.array_equal(goal % 100, length)
    if strategy == "future":
        assert (goal > now).all()
        assert ((goal == successor) & (now % 100 == 0)).any()
    if strategy == "episode":
        assert (goal < now).any()
        assert (goal > now).any()
    assert (goal % 100 >= 1).all()  # never the first observation, which no step achieved
    wanted = np.where(goal == successor, 0.0, -1.0)
    assert np.array_equal(batch.reward.numpy()[relabeled], wanted)
    # reaching the new goal ends the game, and so does a death that no goal explains; a time limit never does
    stored = replay.storage.flags[replay.storage.slot(batch.index % 2, batch.index // 2)] & 2 > 0
    ends = (goal == successor) | stored[relabeled]
    assert np.array_equal(batch.discount.numpy()[relabeled] == 0, ends)
    assert (batch.discount.numpy()[~relabeled][~stored[~relabeled]] > 0).all()


def test_future_goals_are_uniform() -> None:
    replay = filled(strategy="future", goals_per_step=10_000)
    batch = replay.sample(20_000, step=0)
    now, goal = batch.obs["achieved_goal"][:, 0].numpy(), batch.obs["desired_goal"][:, 0].numpy()
    first = (now % 100 == 0) & (now >= 1000)
    ahead = (goal - now)[first]
    share = np.bincount(ahead.astype(int), minlength=10)[1:] / len(ahead)
    assert share == pytest.approx(np.full(9, 1 / 9), abs=0.03)


def test_only_finished_games_are_sampled() -> None:
    assert len(filled(steps=4)) == 0
    assert len(filled(steps=5)) == 5
    assert len(filled(steps=8)) == 5


def test_without_goals_the_steps_are_as_stored() -> None:
    batch = filled(goals_per_step=0).sample(500, step=0)
    assert (batch.obs["desired_goal"] == -1).all()
    assert (batch.reward == -1).all()


def test_a_stored_success_is_undone_by_another_goal() -> None:
    """The game ended because the old goal was reached; for another goal it goes on."""
    reader = Hindsight(reward, np.random.default_rng(0), reached=reached, strategy="episode", goals_per_step=10**6)
    replay = Replay(RawStorage(SPEC, 20, 1), Uniform(), reader, np.random.default_rng(0))
    for t in range(3):
        now, goal = np.full((1, 1), t, np.float32), np.full((1, 1), 3, np.float32)
        end = np.array([t == 2])
        replay.add(Step(
            {"observation": now, "achieved_goal": now, "desired_goal": goal}, np.zeros(1, int),
            np.where(end, 0, -1).astype(np.float32), end, end & False, end,
            {"observation": now + 1, "achieved_goal": now + 1, "desired_goal": goal},
        ))  # fmt: skip
    batch = replay.sample(300, step=0)
    success = (batch.next_obs["achieved_goal"] == batch.next_obs["desired_goal"])[:, 0]
    assert ((batch.discount == 0) == success).all()
    assert (~success & (batch.next_obs["achieved_goal"][:, 0] == 3)).any()


def test_saved_state_gives_the_same_samples() -> None:
    replay = filled()
    other = filled(steps=0)
    other.load_state_dict(replay.state_dict())
    first, second = replay.sample(64, step=0), other.sample(64, step=0)
    assert np.array_equal(first.index, second.index)
    assert (first.obs["desired_goal"] == second.obs["desired_goal"]).all()


def test_bad_use_is_named() -> None:
    with pytest.raises(UsageError, match=r"strategy is 'futur'.*Did you mean 'future'"):
        Hindsight(reward, np.random.default_rng(0), strategy="futur")
    plain = EnvSpec("plain", PART, DiscreteActions(2))
    with pytest.raises(UsageError, match="needs 'achieved_goal'"):
        Replay(
            RawStorage(plain, 20, 1), Uniform(), Hindsight(reward, np.random.default_rng(0)), np.random.default_rng(0)
        )
