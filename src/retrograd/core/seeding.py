"""Named random streams: one consumer each, so that adding one never shifts another."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from retrograd.core.errors import UsageError


def rng_state(rng: np.random.Generator) -> dict[str, Any]:
    """A generator's state as text and numbers below 64 bits, which every file format can hold."""
    state: dict[str, Any] = dict(rng.bit_generator.state)
    if state["bit_generator"] != "PCG64":
        raise UsageError(f"the generator is {state['bit_generator']}: must be PCG64")
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


class Streams:
    """``streams["replay"]`` is a generator that depends on the seed and its name alone."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generators: dict[str, np.random.Generator] = {}

    def __getitem__(self, name: str) -> np.random.Generator:
        if name not in self._generators:
            entropy = np.random.SeedSequence([self.seed, zlib.crc32(name.encode())])
            self._generators[name] = np.random.Generator(np.random.PCG64(entropy))
        return self._generators[name]

    def integer(self, name: str) -> int:
        """A 31-bit seed for things that want one number, equal at every call."""
        return int(np.random.SeedSequence([self.seed, zlib.crc32(name.encode()), 1]).generate_state(1)[0] >> 1)

    def state_dict(self) -> dict[str, Any]:
        states = {name: rng_state(generator) for name, generator in self._generators.items()}
        return {"seed": self.seed, "generators": states}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.seed = int(state["seed"])
        for name, saved in state["generators"].items():
            load_rng_state(self[name], saved)
