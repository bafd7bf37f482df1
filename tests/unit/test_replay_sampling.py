"""What is drawn how often, and the weights that make up for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from retrograd.core.errors import FailureGate, UsageError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.replay import NStep, Prioritized, RawStorage, Replay, Uniform

SPEC = EnvSpec("line", ArraySpec((1,), np.dtype(np.float32)), DiscreteActions(2))


def filled(sampler: Any, steps: int = 60, capacity: int = 80, num_envs: int = 2, n_steps: int = 3) -> Replay[Any]:
    replay = Replay(RawStorage(SPEC, capacity, num_envs), sampler, NStep(n_steps, 0.9), np.random.default_rng(3))
    for t in range(steps):
        add(replay, t)
    return replay


def add(replay: Replay[Any], t: int) -> None:
    num_envs = replay.storage.num_envs
    end = np.array([t % (7 + 4 * row) == 5 for row in range(num_envs)])
    obs = np.full((num_envs, 1), t, np.float32)
    reward = np.zeros(num_envs, np.float32)
    replay.add(Step(obs, np.zeros(num_envs, int), reward, end, ~end & end, end, obs + 1))


def counts(replay: Replay[Any], draws: int, batch: int) -> dict[int, int]:
    index = np.concatenate([replay.sample(batch, step=0).index for _ in range(draws // batch)])
    values, numbers = np.unique(index, return_counts=True)
    return dict(zip(values.tolist(), numbers.tolist(), strict=True))


@pytest.mark.parametrize("steps", [12, 60])
def test_uniform_is_uniform(steps: int) -> None:
    """REQ REPLAY-1: in a ring half full as in one that came round."""
    replay = filled(Uniform(), steps=steps)
    found = counts(replay, 100_000, 500)
    assert len(found) == len(replay)
    assert stats.chisquare(list(found.values())).pvalue > 1e-3


def test_prioritized_is_proportional() -> None:
    """REQ REPLAY-3. One draw a batch, as the draws of one stratified batch are not independent."""
    replay = filled(Prioritized(alpha=0.7))
    index = np.unique(replay.sample(2000, step=0).index)
    assert len(index) == len(replay)
    priority = np.random.default_rng(0).exponential(size=len(index))
    replay.update(index, torch.from_numpy(priority))
    used = np.full(2, replay.storage.slots_per_row)
    drawn = [replay.sampler.draw(replay.starts, used, 1, step=0, rng=replay.rng)[0][0] for _ in range(30_000)]
    row, position = replay.storage.locate(np.array(drawn))
    values, numbers = np.unique(position * 2 + row, return_counts=True)
    found = dict(zip(values.tolist(), numbers.tolist(), strict=True))
    wanted = (priority + 1e-6) ** 0.7
    wanted *= 30_000 / wanted.sum()
    observed = np.array([found.get(int(one), 0) for one in index])
    common = wanted > 5
    pooled = np.append(observed[common], observed[~common].sum()), np.append(wanted[common], wanted[~common].sum())
    keep = pooled[1] > 0
    assert stats.chisquare(pooled[0][keep], pooled[1][keep]).pvalue > 1e-3


def test_stratified_batch_has_the_same_marginal() -> None:
    replay = filled(Prioritized(alpha=1.0))
    index = np.unique(replay.sample(2000, step=0).index)
    priority = np.arange(1, len(index) + 1, dtype=np.float64)
    replay.update(index, torch.from_numpy(priority))
    found = counts(replay, 64_000, 64)
    share = np.array([found.get(int(one), 0) for one in index]) / 64_000
    assert np.abs(share - priority / priority.sum()).max() < 0.002


def test_weights_undo_the_priorities() -> None:
    """E_P[w · x] over E_P[w] is the plain mean of x when β is 1."""
    replay = filled(Prioritized(beta_start=1.0))
    index = np.unique(replay.sample(2000, step=0).index)
    replay.update(index, torch.from_numpy(np.random.default_rng(1).exponential(size=len(index)) + 0.1))
    value = dict(zip(index.tolist(), np.random.default_rng(2).random(len(index)).tolist(), strict=True))
    # one batch, as every batch divides by its own largest weight
    batch = replay.sample(200_000, step=0)
    x = np.array([value[one] for one in batch.index.tolist()])
    weight = batch.weight.double().numpy()
    assert (weight * x).sum() / weight.sum() == pytest.approx(np.mean(list(value.values())), abs=0.003)


def test_beta_grows_with_frames() -> None:
    sampler = Prioritized(beta_start=0.4, beta_end=1.0, beta_decay_frames=1000, frames_per_step=4)
    assert [sampler.beta(step) for step in (0, 125, 250, 9999)] == pytest.approx([0.4, 0.7, 1.0, 1.0])


def test_new_items_get_the_largest_priority_seen() -> None:
    """Also when nothing in the replay has it any more, and raised to α once."""
    sampler = Prioritized(alpha=0.5)
    replay = filled(sampler, n_steps=1)
    index = replay.sample(4, step=0).index
    replay.update(index, torch.full((4,), 15.0))
    replay.update(index, torch.full((4,), 0.1))
    before = replay.starts.valid.copy()
    add(replay, 0)
    fresh = np.flatnonzero(replay.starts.valid & ~before)
    assert len(fresh) == 2
    assert sampler.tree[fresh] == pytest.approx([np.sqrt(15.0 + 1e-6)] * 2)


def test_alpha_zero_is_uniform_over_valid_starts() -> None:
    replay = filled(Prioritized(alpha=0.0))
    replay.update(replay.sample(30, step=0).index, torch.linspace(0, 5, 30))
    assert replay.sampler.tree.total == len(replay)
    assert (replay.sample(50, step=0).weight == 1).all()


def test_stale_priorities_are_ignored() -> None:
    replay = filled(Prioritized())
    batch = replay.sample(64, step=0)
    for t in range(100):
        add(replay, t)
    before = replay.sampler.tree.nodes.copy()
    replay.update(batch.index, torch.full((64,), 99.0))
    assert np.array_equal(before, replay.sampler.tree.nodes)
    assert replay.sampler.largest == 1.0


def test_batches_stay_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers are used again only when no tensor refers to them."""
    monkeypatch.setattr("retrograd.replay.staging.SMALL_BYTES", 0)  # small ones are left to the allocator
    replay = filled(Uniform())
    batches = [replay.sample(8, step=0) for _ in range(10)]
    copies = [batch.obs.clone() for batch in batches]
    assert len({batch.obs.data_ptr() for batch in batches}) == 10
    for batch, copy in zip(batches, copies, strict=True):
        assert torch.equal(batch.obs, copy)
    del batches, batch
    pointers = {replay.sample(8, step=0).obs.data_ptr() for _ in range(10)}
    assert len(pointers) <= 2


def test_equal_generators_give_equal_batches() -> None:
    first, second = filled(Prioritized()), filled(Prioritized())
    for _ in range(3):
        assert np.array_equal(first.sample(16, step=5).index, second.sample(16, step=5).index)


def test_diagnostics() -> None:
    """REQ REPLAY-8."""
    replay = filled(Prioritized())
    replay.sample(8, step=0)
    figures = replay.diagnostics()
    assert figures["fill"] == len(replay) / 80
    assert figures["effective_sample_size"] == pytest.approx(1.0)
    assert figures["bytes"] > 0
    assert figures["age_steps"] > 0
    one = replay.sample(1, step=0).index
    replay.update(one, torch.tensor([1e6]))
    figures = replay.diagnostics()
    assert figures["effective_sample_size"] < 0.5
    assert figures["priority_max"] > figures["priority_q90"] == 1.0


def test_bad_use_is_named() -> None:
    empty = Replay(RawStorage(SPEC, 80, 2), Uniform(), NStep(), np.random.default_rng(0))
    with pytest.raises(UsageError, match="no complete transition"):
        empty.sample(4, step=0)
    replay = filled(Prioritized())
    with pytest.raises(UsageError, match="batch_size is 0"):
        replay.sample(0, step=0)
    batch = replay.sample(4, step=0)
    with pytest.raises(FailureGate, match="not finite"):
        replay.update(batch.index, torch.tensor([1.0, float("nan"), 1.0, 1.0]))
    with pytest.raises(UsageError, match="shape"):
        replay.update(batch.index, torch.ones(3))
    for options, name in [
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"beta_start": -1.0}, "beta_start is -1"),
        ({"priority_eps": 0.0}, "priority_eps is 0"),
    ]:
        with pytest.raises(UsageError, match=name):
            Prioritized(**options)
