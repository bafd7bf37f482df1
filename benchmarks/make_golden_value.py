"""Make tests/golden/value.json: inputs and outputs of value learning, computed by rlax.

Run it in an environment of its own that has rlax and a CPU jax; the tests read the file alone:
    python -m venv ENV && ENV/bin/pip install rlax==0.1.9 && ENV/bin/python benchmarks/make_golden_value.py
Munchausen targets, which rlax has not, are computed here in float64 straight from the paper's formula.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import numpy as np
import rlax

jax.config.update("jax_enable_x64", True)
OUT = Path(__file__).parents[1] / "tests" / "golden" / "value.json"
BATCH, ACTIONS, ATOMS, TARGET_ATOMS = 6, 4, 5, 7  # all different, so that a mixed-up axis cannot go unseen


def transitions(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "action": rng.integers(ACTIONS, size=BATCH),
        "reward": rng.normal(0, 2, BATCH),
        "discount": np.array([0.99, 0.0, 0.97, 0.99, 0.0, 0.5]),
    }


def scalar_case(rng: np.random.Generator) -> dict[str, Any]:
    case = transitions(rng) | {name: rng.normal(0, 3, (BATCH, ACTIONS)) for name in ("q", "next_q", "next_online")}
    args = (case["q"], case["action"], case["reward"], case["discount"], case["next_q"])
    case["q_learning"] = jax.vmap(rlax.q_learning)(*args)
    case["double_q_learning"] = jax.vmap(rlax.double_q_learning)(*args, case["next_online"])
    return case


def categorical_case(rng: np.random.Generator) -> dict[str, Any]:
    support = np.linspace(-2.0, 2.0, ATOMS)
    shape = (BATCH, ACTIONS, ATOMS)
    case = transitions(rng) | {name: rng.normal(0, 1, shape) for name in ("logits", "next_logits", "next_online")}
    values = np.asarray(jax.nn.softmax(case["next_online"]) @ support)
    loss = jax.vmap(rlax.categorical_double_q_learning, in_axes=(None, 0, 0, 0, 0, None, 0, 0))
    args = (case["logits"], case["action"], case["reward"], case["discount"])
    case["support"] = support
    case["double"] = loss(support, *args, support, case["next_logits"], values)
    own = np.asarray(jax.nn.softmax(case["next_logits"]) @ support)
    case["single"] = loss(support, *args, support, case["next_logits"], own)
    return case


def projection_case(rng: np.random.Generator) -> dict[str, Any]:
    """Exact hits, both edges, beyond both edges, and everything on one place."""
    support = np.linspace(-10.0, 10.0, 51)
    places = np.stack(
        [
            support,
            support + 0.2,
            np.full(51, -10.0),
            np.full(51, 10.0),
            support * 3,
            np.sort(rng.normal(-30, 1, 51)),
            np.sort(rng.normal(30, 1, 51)),
            0.97 * support + 1.0,
        ]
    )
    # rlax wants increasing places: ties are spread by less than the tolerance
    places = places + np.arange(51) * 1e-12
    mass = rng.dirichlet(np.full(51, 0.3), len(places))
    project = jax.vmap(rlax.categorical_l2_project, in_axes=(0, 0, None))
    return {"support": support, "places": places, "mass": mass, "projected": project(places, mass, support)}


def quantile_case(rng: np.random.Generator, kappa: float) -> dict[str, Any]:
    case = transitions(rng) | {"kappa": kappa, "fractions": rng.uniform(size=(BATCH, ATOMS))}
    case["places"] = rng.normal(0, 2, (BATCH, ACTIONS, ATOMS))
    case["next_places"] = rng.normal(0, 2, (BATCH, ACTIONS, TARGET_ATOMS))
    case["selector"] = rng.normal(0, 2, (BATCH, ACTIONS, 3))
    loss = jax.vmap(rlax.quantile_q_learning, in_axes=(0, 0, 0, 0, 0, 0, 0, None))
    case["loss"] = loss(
        case["places"].swapaxes(1, 2),
        case["fractions"],
        case["action"],
        case["reward"],
        case["discount"],
        case["selector"].swapaxes(1, 2),
        case["next_places"].swapaxes(1, 2),
        kappa,
    )
    return case


def munchausen_case(rng: np.random.Generator) -> dict[str, Any]:
    alpha, tau, clip = 0.9, 0.03, -1.0
    case = transitions(rng) | {"alpha": alpha, "tau": tau, "clip": clip}
    case["q"], case["next_q"] = rng.normal(0, 0.05, (2, BATCH, ACTIONS))

    def log_policy(q: np.ndarray) -> np.ndarray:
        weights = np.exp(q / tau)
        return np.log(weights / weights.sum(1, keepdims=True))

    bonus = alpha * np.clip(tau * log_policy(case["q"])[np.arange(BATCH), case["action"]], clip, 0.0)
    after = log_policy(case["next_q"])
    soft = (np.exp(after) * (case["next_q"] - tau * after)).sum(1)
    case["goal"] = case["reward"] + bonus + case["discount"] * soft
    return case


def lambda_case(rng: np.random.Generator) -> dict[str, Any]:
    steps, rows, decay = 9, 3, 0.65
    case = {"reward": rng.normal(size=(steps, rows)), "next_value": rng.normal(size=(steps, rows)), "lambda": decay}
    case["discount"] = np.where(rng.random((steps, rows)) < 0.2, 0.0, 0.99)
    returns = jax.vmap(rlax.lambda_returns, in_axes=(1, 1, 1, None), out_axes=1)
    case["returns"] = returns(case["reward"], case["discount"], case["next_value"], decay)
    return case


def main() -> None:
    rng = np.random.default_rng(20)
    cases = {
        "scalar": scalar_case(rng),
        "categorical": categorical_case(rng),
        "projection": projection_case(rng),
        "quantile": quantile_case(rng, 0.0),
        "quantile_huber": quantile_case(rng, 1.0),
        "munchausen": munchausen_case(rng),
        "lambda": lambda_case(rng),
    }
    plain = {name: {key: np.asarray(value).tolist() for key, value in case.items()} for name, case in cases.items()}
    OUT.write_text(json.dumps({"made_with": f"rlax {rlax.__version__}", **plain}, indent=None) + "\n")


if __name__ == "__main__":
    main()
