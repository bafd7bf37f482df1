"""A generator's state in a form that every file format can hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import UsageError


def rng_state(rng: np.random.Generator) -> dict[str, Any]:
    """Text and numbers below 64 bits."""
    state: dict[str, Any] = dict(rng.bit_generator.state)
    if state["bit_generator"] != "PCG64":
        raise UsageError(f"the replay's generator is {state['bit_generator']}: must be PCG64")
    inner = {name: str(value) for name, value in state["state"].items()}
    return {"has_uint32": int(state["has_uint32"]), "uinteger": int(state["uinteger"])} | inner


def load_rng_state(rng: np.random.Generator, saved: dict[str, Any]) -> None:
    """Put back what ``rng_state`` gave."""
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": int(saved["state"]), "inc": int(saved["inc"])},
        "has_uint32": int(saved["has_uint32"]),
        "uinteger": int(saved["uinteger"]),
    }
