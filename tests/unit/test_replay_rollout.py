"""Rollouts: advantages by brute force, true successors at time limits, and sequences with their states."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from retrograd.core.errors import UsageError
from retrograd.core.types import Step
from retrograd.replay import RecurrentRolloutBuffer, RolloutBuffer

T, N, GAMMA, LAMBDA = 12, 3, 0.9, 0.8


def value_of(obs: Any) -> np.ndarray:
    return np.sin(obs[:, 0]).astype(np.float32)


def steps(seed: int, count: int = T) -> list[Step]:
    """Lives, games and time limits end at random; observations are numbers never seen twice."""
    rng = np.random.default_rng(seed)
    obs = rng.random((N, 1)) * 100
    made = []
    for _ in range(count):
        following = rng.random((N, 1)) * 100
        kind = rng.integers(8, size=N)
        terminated, truncated = (kind == 0) | (kind == 1), kind == 2
        reset = (kind == 0) | truncated
        after = np.where(reset[:, None], rng.random((N, 1)) * 100, following)
        extras = {"value": value_of(obs), "log_prob": rng.normal(size=N), "mark": obs[:, 0].copy()}
        reward = rng.normal(size=N).astype(np.float32)
        made.append(Step(obs, rng.integers(4, size=N), reward, terminated, truncated, reset, following, extras))
        obs = after
    return made


def brute_force(played: list[Step], t: int, row: int) -> float:
    """Σ (γλ)^k δ_{t+k} up to the first cut."""
    total, factor = 0.0, 1.0
    for step in played[t:]:
        bootstrap = 0.0 if step.terminated[row] else float(value_of(step.next_obs)[row])
        total += factor * (step.reward[row] + GAMMA * bootstrap - step.extras["value"][row])
        if step.terminated[row] or step.truncated[row] or step.reset[row]:
            break
        factor *= GAMMA * LAMBDA
    return total


@pytest.mark.parametrize("seed", range(4))
def test_advantages_equal_brute_force(seed: int) -> None:
    """REQ REPLAY-7; the second rollout of the same buffer too."""
    played = steps(seed, 2 * T)
    buffer = RolloutBuffer(T, N, gamma=GAMMA, gae_lambda=LAMBDA)
    for part in (played[:T], played[T:]):
        for step in part:
            buffer.add(step)
        rollout = buffer.finish(value_of)
        wanted = [[brute_force(part, t, row) for row in range(N)] for t in range(T)]
        assert rollout.advantage.numpy() == pytest.approx(np.array(wanted), abs=1e-5)
        assert torch.allclose(rollout.returns, rollout.advantage + rollout.value)


def test_what_follows_a_reward_may_be_kept_from_what_came_before_it() -> None:
    """Advantages are those of games that end with each reward; rewards themselves and starts of games stay."""
    played = [replace(step, reward=np.where(step.reward > 0.5, step.reward, 0).astype(np.float32)) for step in steps(0)]
    points = [replace(step, terminated=step.terminated | (step.reward != 0)) for step in played]
    assert sum(int(point.terminated.sum() - step.terminated.sum()) for point, step in zip(points, played, strict=True))
    buffer = RolloutBuffer(T, N, gamma=GAMMA, gae_lambda=LAMBDA, reward_ends_sum=True)
    for step in played:
        buffer.add(step)
    buffer.check_valid()
    rollout = buffer.finish(value_of)
    wanted = np.array([[brute_force(points, t, row) for row in range(N)] for t in range(T)])
    assert rollout.advantage.numpy() == pytest.approx(wanted, abs=1e-5)
    plain = np.array([[brute_force(played, t, row) for row in range(N)] for t in range(T)])
    assert np.abs(wanted - plain).max() > 0.1
    assert torch.equal(rollout.reward, torch.tensor(np.stack([step.reward for step in played])))


def test_successors_at_time_limits_are_the_true_ones() -> None:
    """A mutant that takes the next step's value (of the reset observation) gives another advantage."""
    played = steps(0)
    at, row = next((t, n) for t in range(T - 1) for n in range(N) if played[t].truncated[n])
    buffer = RolloutBuffer(T, N, gamma=GAMMA, gae_lambda=LAMBDA)
    for step in played:
        buffer.add(step)
    rollout = buffer.finish(value_of)
    delta = played[at].reward[row] - played[at].extras["value"][row]
    assert float(rollout.advantage[at, row]) == pytest.approx(
        delta + GAMMA * float(value_of(played[at].next_obs)[row]), abs=1e-5
    )
    wrong = delta + GAMMA * float(played[at + 1].extras["value"][row])
    assert abs(float(rollout.advantage[at, row]) - wrong) > 1e-3


def test_minibatches_hold_every_step_once() -> None:
    buffer = RolloutBuffer(T, N)
    for step in steps(1):
        buffer.add(step)
    rollout = buffer.finish(value_of)
    batches = list(rollout.minibatches(10, np.random.default_rng(0)))
    assert [len(batch.reward) for batch in batches] == [10, 10, 10, 6]
    for batch in batches:
        assert torch.equal(batch.obs[:, 0], batch.extras["mark"])
    seen = torch.cat([batch.obs[:, 0] for batch in batches])
    assert torch.equal(seen.sort().values, rollout.obs.flatten().sort().values)
    assert not torch.equal(seen, rollout.obs.flatten())


def recurrent(seed: int) -> tuple[list[Step], Any]:
    """The state before a step is twice its observation: nothing else could stand in for it."""
    played = steps(seed)
    buffer = RecurrentRolloutBuffer(T, N, gamma=GAMMA, gae_lambda=LAMBDA)
    for step in played:
        buffer.add(step, {"h": 2 * step.obs}, {"h": 3 * step.next_obs})

    def with_state(obs: Any, state: Any) -> np.ndarray:
        assert np.array_equal(state["h"], 3 * obs)
        return value_of(obs)

    return played, buffer.finish(with_state)


@pytest.mark.parametrize("length_steps", [None, 3])
def test_sequences_hold_every_step_once(length_steps: int | None) -> None:
    played, rollout = recurrent(2)
    marks = []
    for batch in rollout.sequences(4, np.random.default_rng(0), length_steps=length_steps):
        first = batch.steps.obs[0]
        assert torch.equal(batch.state["h"], 2 * first)
        assert length_steps is None or len(batch.mask) <= length_steps
        marks.append(batch.steps.extras["mark"][batch.mask])
        for s in range(batch.mask.shape[1]):
            run = batch.steps.extras["mark"][batch.mask[:, s], s].tolist()
            check_run(played, run)
    everything = np.concatenate([step.extras["mark"] for step in played])
    assert torch.cat(marks).sort().values.tolist() == np.sort(everything).tolist()


def check_run(played: list[Step], run: list[float]) -> None:
    """Steps of one row that follow each other, with no new game after the first."""
    table = np.stack([step.extras["mark"] for step in played])
    (t,), (row,) = np.nonzero(table == run[0])
    assert run == table[t : t + len(run), row].tolist()
    assert not any(played[k].reset[row] for k in range(t, t + len(run) - 1))


def test_episode_starts() -> None:
    played, rollout = recurrent(3)
    wanted = [[True] * N] + [step.reset.tolist() for step in played[:-1]]
    assert rollout.episode_start.tolist() == wanted


def test_bad_use_is_named() -> None:
    buffer = RolloutBuffer(2, N)
    first, second, third = steps(0, 3)
    with pytest.raises(UsageError, match="extras lack 'value'"):
        buffer.add(
            Step(first.obs, first.action, first.reward, first.terminated, first.truncated, first.reset, first.obs)
        )
    buffer.add(first)
    with pytest.raises(UsageError, match="1 of its 2 steps"):
        buffer.finish(value_of)
    buffer.add(second)
    with pytest.raises(UsageError, match="already has its 2 steps"):
        buffer.add(third)
    with pytest.raises(UsageError, match="gae_lambda is 2"):
        RolloutBuffer(2, N, gae_lambda=2.0)


def test_rollouts_know_when_they_are_valid() -> None:
    """After every step and after every rollout; each contradiction put in by hand is found."""
    plain = RolloutBuffer(T, N)
    for step in steps(5):
        plain.add(step)
        plain.check_valid()
    plain.finish(value_of)
    plain.check_valid()


def drop_a_successor(buffer: Any) -> None:
    buffer._buffer.successors.pop()


def forget_a_state(buffer: Any) -> None:
    buffer._successor_states.pop()


def begin_a_game_anywhere(buffer: Any) -> None:
    buffer._starts[1:] |= ~buffer._buffer._fields["cut"][:-1]


def sum_across_a_terminal(buffer: Any) -> None:
    fields = buffer._buffer._fields
    fields["cut"] &= ~fields["terminated"]


@pytest.mark.parametrize("damage", [drop_a_successor, forget_a_state, begin_a_game_anywhere, sum_across_a_terminal])
def test_contradictions_in_a_rollout_are_found(damage: Any) -> None:
    buffer = RecurrentRolloutBuffer(T, N)
    state = {"h": np.zeros((N, 2), np.float32)}
    for step in steps(5):
        buffer.add(step, state, state)
        buffer.check_valid()
    damage(buffer)
    with pytest.raises(AssertionError):
        buffer.check_valid()
