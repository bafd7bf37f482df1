"""Make tests/golden/returns.json: λ-returns and V-trace of made-up sequences, computed by rlax.

Run it in an environment of its own that has rlax and a CPU jax; the tests read the file alone:
    python -m venv ENV && ENV/bin/pip install rlax==0.1.9 && ENV/bin/python benchmarks/make_golden_returns.py
rlax knows ends (a discount of 0) and no time limits: those the tests check against sums written out.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import rlax

jax.config.update("jax_enable_x64", True)
OUT = Path(__file__).parents[1] / "tests" / "golden" / "returns.json"
STEPS, ROWS = 12, 3


def sequences(rng: np.random.Generator) -> dict[str, Any]:
    values = rng.normal(0, 2, (STEPS + 1, ROWS))
    return {
        "reward": rng.normal(0, 1, (STEPS, ROWS)),
        "discount": np.where(rng.random((STEPS, ROWS)) < 0.2, 0.0, 0.97),
        "value": values[:-1],
        "next_value": values[1:],
        "log_ratio": rng.normal(0, 0.7, (STEPS, ROWS)),
    }


def by_row(function: Any) -> Any:
    return jax.vmap(function, in_axes=1, out_axes=1)


def lambda_case(seq: dict[str, Any], trace_lambda: float) -> dict[str, Any]:
    returns = by_row(partial(rlax.lambda_returns, lambda_=trace_lambda))(
        seq["reward"], seq["discount"], seq["next_value"]
    )
    return {"trace_lambda": trace_lambda, "returns": returns}


def vtrace_case(seq: dict[str, Any], rho_clip: float) -> dict[str, Any]:
    function = partial(
        rlax.vtrace_td_error_and_advantage, clip_rho_threshold=rho_clip, clip_pg_rho_threshold=rho_clip, lambda_=1.0
    )
    out = by_row(function)(seq["value"], seq["next_value"], seq["reward"], seq["discount"], np.exp(seq["log_ratio"]))
    return {"rho_clip": rho_clip, "target": seq["value"] + out.errors, "advantage": out.pg_advantage}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return np.asarray(value).tolist()


def main() -> None:
    seq = sequences(np.random.default_rng(11))
    cases = {
        "made_with": f"rlax {rlax.__version__}",
        "sequences": plain(seq),
        "lambda": [plain(lambda_case(seq, trace_lambda)) for trace_lambda in (0.0, 0.65, 1.0)],
        "vtrace": [plain(vtrace_case(seq, rho_clip)) for rho_clip in (1.0, 2.0)],  # rlax has c̄ = 1 always
    }
    OUT.write_text(json.dumps(cases) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
