"""Advantages against sums written out, with every kind of end."""

from __future__ import annotations

import numpy as np
import pytest

from retrograd.core.returns import gae

T, N, GAMMA, LAMBDA = 15, 4, 0.97, 0.9


def sequences(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    kind = rng.integers(6, size=(T, N))  # 0: a game or a life ended, 1: a time limit, else: went on
    value = rng.normal(size=(T, N))
    next_value = rng.normal(size=(T, N))
    going_on = (kind > 1)[:-1]
    next_value[:-1][going_on] = value[1:][going_on]
    return {
        "reward": rng.normal(size=(T, N)),
        "discount": np.where(kind == 0, 0.0, GAMMA),
        "value": value,
        "next_value": next_value,
        "cut": kind < 2,
    }


def brute_force(seq: dict[str, np.ndarray]) -> np.ndarray:
    """A_t = Σ_n (1-λ) λ^(n-1) (n-step return - V), by Σ (γλ)^k δ up to the first cut."""
    advantage = np.zeros((T, N))
    for t in range(T):
        for n in range(N):
            factor = 1.0
            for k in range(t, T):
                bootstrap = seq["discount"][k, n] * seq["next_value"][k, n]
                advantage[t, n] += factor * (seq["reward"][k, n] + bootstrap - seq["value"][k, n])
                if seq["cut"][k, n]:
                    break
                factor *= GAMMA * LAMBDA
    return advantage


@pytest.mark.parametrize("seed", range(5))
def test_gae_equals_the_sum_written_out(seed: int) -> None:
    seq = sequences(seed)
    assert gae(**seq, gae_lambda=LAMBDA) == pytest.approx(brute_force(seq))


def test_mutants_differ_from_the_sum() -> None:
    """Bootstrapping through an end, treating a time limit as an end, and summing over it, are all seen."""
    seq = sequences(0)
    wanted = brute_force(seq)
    through_ends = {**seq, "discount": np.full((T, N), GAMMA)}
    limit_as_end = {**seq, "discount": np.where(seq["cut"], 0.0, GAMMA)}
    uncut = {**seq, "cut": np.zeros((T, N), bool)}
    for mutant in (through_ends, limit_as_end, uncut):
        assert np.abs(gae(**mutant, gae_lambda=LAMBDA) - wanted).max() > 0.1


def test_lambda_one_is_the_return_and_lambda_zero_the_error() -> None:
    seq = sequences(1)
    delta = seq["reward"] + seq["discount"] * seq["next_value"] - seq["value"]
    assert gae(**seq, gae_lambda=0.0) == pytest.approx(delta)
    total = gae(**seq, gae_lambda=1.0)[0] + seq["value"][0]
    for n in range(N):
        expected, factor = 0.0, 1.0
        for t in range(T):
            expected += factor * seq["reward"][t, n]
            if seq["cut"][t, n] or t == T - 1:
                expected += factor * seq["discount"][t, n] * seq["next_value"][t, n]
                break
            factor *= GAMMA
        assert total[n] == pytest.approx(expected)
