"""Advantages, λ-returns and V-trace against sums written out, with every kind of end, and against rlax."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrograd.core.returns import gae, lambda_return, vtrace

T, N, GAMMA, LAMBDA = 15, 4, 0.97, 0.9
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "returns.json").read_text())


def golden_sequences(*names: str) -> dict[str, np.ndarray]:
    return {name: np.array(GOLDEN["sequences"][name]) for name in names}


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


@pytest.mark.parametrize("case", GOLDEN["lambda"], ids=lambda case: f"lambda {case['trace_lambda']}")
def test_lambda_returns_match_rlax(case: dict[str, Any]) -> None:
    seq = golden_sequences("reward", "discount", "next_value")
    found = lambda_return(**seq, cut=seq["discount"] == 0, trace_lambda=case["trace_lambda"])
    assert np.allclose(found, case["returns"], rtol=0, atol=1e-6)


@pytest.mark.parametrize("case", GOLDEN["vtrace"], ids=lambda case: f"rho {case['rho_clip']}")
def test_vtrace_matches_rlax(case: dict[str, Any]) -> None:
    seq = golden_sequences("log_ratio", "reward", "discount", "value", "next_value")
    found = vtrace(**seq, cut=seq["discount"] == 0, rho_clip=case["rho_clip"])
    assert np.allclose(found.target, case["target"], rtol=0, atol=1e-6)
    assert np.allclose(found.advantage, case["advantage"], rtol=0, atol=1e-6)


def n_step_return(seq: dict[str, np.ndarray], t: int, n: int, steps: int) -> float:
    """The discounted rewards of at most ``steps`` steps and the worth of where they led."""
    total, factor = 0.0, 1.0
    for k in range(t, min(t + steps, T)):
        total += factor * seq["reward"][k, n]
        last = k == min(t + steps, T) - 1 or seq["cut"][k, n]
        if last:
            return total + factor * float(seq["discount"][k, n] * seq["next_value"][k, n])
        factor *= GAMMA
    raise AssertionError


@pytest.mark.parametrize("seed", range(3))
def test_lambda_returns_are_means_of_n_step_returns(seed: int) -> None:
    """With time limits: Σ (1-λ) λ^(k-1) of the k-step returns; the longest takes what weight is left."""
    seq = sequences(seed)
    wanted = np.zeros((T, N))
    for t in range(T):
        for n in range(N):
            length = next((k + 1 for k in range(T - t) if seq["cut"][t + k, n]), T - t)
            weights = [(1 - LAMBDA) * LAMBDA ** (k - 1) for k in range(1, length)]
            weights.append(1 - sum(weights))
            wanted[t, n] = sum(w * n_step_return(seq, t, n, k) for k, w in enumerate(weights, 1))
    value = seq.pop("value")
    found = lambda_return(**seq, trace_lambda=LAMBDA)
    assert found == pytest.approx(wanted)
    # what the rollout buffer gives PQN is the same sum
    assert found == pytest.approx(value + gae(**seq, value=value, gae_lambda=LAMBDA))


def vtrace_written_out(seq: dict[str, np.ndarray], log_ratio: np.ndarray, rho_clip: float, c_clip: float) -> Any:
    """Remark 1 of the paper: v_s = V_s + Σ_t γ^(t-s) (Π_{i<t} c_i) ρ_t (r_t + γ V_{t+1} - V_t), to the first cut."""
    ratio = np.exp(log_ratio)
    target = seq["value"].copy()
    for t in range(T):
        for n in range(N):
            factor = 1.0
            for k in range(t, T):
                error = seq["reward"][k, n] + seq["discount"][k, n] * seq["next_value"][k, n] - seq["value"][k, n]
                target[t, n] += factor * min(rho_clip, ratio[k, n]) * error
                if seq["cut"][k, n]:
                    break
                factor *= GAMMA * min(c_clip, ratio[k, n])
    advantage = np.zeros((T, N))
    for t in range(T):
        for n in range(N):
            alone = t == T - 1 or seq["cut"][t, n]
            future = seq["next_value"][t, n] if alone else target[t + 1, n]
            error = seq["reward"][t, n] + seq["discount"][t, n] * future - seq["value"][t, n]
            advantage[t, n] = min(rho_clip, ratio[t, n]) * error
    return target, advantage


@pytest.mark.parametrize("clips", [(1.0, 1.0), (2.0, 0.8), (np.inf, np.inf)])
@pytest.mark.parametrize("seed", range(3))
def test_vtrace_equals_the_sum_written_out(seed: int, clips: tuple[float, float]) -> None:
    seq = sequences(seed)
    log_ratio = np.random.default_rng(seed).normal(0, 0.8, (T, N))
    found = vtrace(log_ratio, **seq, rho_clip=clips[0], c_clip=clips[1])
    target, advantage = vtrace_written_out(seq, log_ratio, *clips)
    assert found.target == pytest.approx(target)
    assert found.advantage == pytest.approx(advantage)
    assert found.rho == pytest.approx(np.minimum(np.exp(log_ratio), clips[0]))


def test_vtrace_on_policy_is_the_n_step_return() -> None:
    """Equal policies: the target is the return to the first cut, and the advantage is its distance from the value."""
    seq = sequences(4)
    found = vtrace(np.zeros((T, N)), **seq)
    wanted = np.array([[n_step_return(seq, t, n, T) for n in range(N)] for t in range(T)])
    assert found.target == pytest.approx(wanted)
    assert found.advantage == pytest.approx(wanted - seq["value"])


def test_vtrace_mutants_differ() -> None:
    seq = sequences(0)
    log_ratio = np.random.default_rng(0).normal(0, 0.8, (T, N))
    wanted = vtrace(log_ratio, **seq)
    for mutant in (
        vtrace(-log_ratio, **seq),
        vtrace(np.zeros((T, N)), **seq),
        vtrace(log_ratio, **{**seq, "cut": np.zeros((T, N), bool)}),
        vtrace(log_ratio, **{**seq, "discount": np.full((T, N), GAMMA)}),
    ):
        assert np.abs(mutant.target - wanted.target).max() > 0.1
    one_step = np.exp(log_ratio).clip(max=1) * (
        seq["reward"] + seq["discount"] * seq["next_value"] - seq["value"]
    )  # V(s_{t+1}) in the place of v_{t+1}
    assert np.abs(one_step - wanted.advantage).max() > 0.1
