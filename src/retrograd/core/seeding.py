"""Named random streams: one consumer each, so that adding one never shifts another."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np


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
        # PCG64 states exceed 64 bits, which tensors and JSON readers cut off: kept as text
        states = {}
        for name, generator in self._generators.items():
            state: dict[str, Any] = dict(generator.bit_generator.state)
            inner = state["state"]
            states[name] = {
                "state": str(inner["state"]),
                "inc": str(inner["inc"]),
                "has_uint32": int(state["has_uint32"]),
                "uinteger": int(state["uinteger"]),
            }
        return {"seed": self.seed, "generators": states}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.seed = int(state["seed"])
        for name, saved in state["generators"].items():
            self[name].bit_generator.state = {
                "bit_generator": "PCG64",
                "state": {"state": int(saved["state"]), "inc": int(saved["inc"])},
                "has_uint32": saved["has_uint32"],
                "uinteger": saved["uinteger"],
            }
