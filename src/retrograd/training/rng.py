"""All random states of a run: our named streams, and the global generators that others may ask."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch

from retrograd.core.protocols import Stateful


def rng_states(streams: Stateful) -> dict[str, Any]:
    """What ``load_rng_states`` puts back."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)  # noqa: NPY002 - others may use it
    return {
        "streams": streams.state_dict(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "python": {"version": version, "words": list(words), "gauss": gauss},
        "numpy": {
            "name": str(name),
            "keys": np.asarray(keys).astype(np.int64),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
    }


def load_rng_states(streams: Stateful, states: dict[str, Any]) -> None:
    streams.load_state_dict(states["streams"])
    torch.set_rng_state(states["torch"])
    if torch.cuda.is_available() and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
    python, legacy = states["python"], states["numpy"]
    random.setstate((python["version"], tuple(python["words"]), python["gauss"]))
    keys = np.asarray(legacy["keys"]).astype(np.uint32)
    np.random.set_state(  # noqa: NPY002 - others may use it
        (legacy["name"], keys, legacy["position"], legacy["has_gauss"], legacy["cached"])
    )
