"""The memory a run will need, known before anything is allocated."""

from __future__ import annotations

import psutil

from retrograd.build.protocol import planned_spec
from retrograd.config import Config
from retrograd.core.errors import UsageError
from retrograd.replay.memory import bytes_needed

# what Python, torch, the emulators and the network take beside the replay, measured on the default run
FIXED_BYTES = 620_000_000


def memory_needed(config: Config) -> int:
    """Bytes of the run at its peak: when the replay is full."""
    if config["agent"]["kind"] != "value":
        return FIXED_BYTES
    replay = config["replay"]
    return FIXED_BYTES + bytes_needed(
        planned_spec(config),
        replay["capacity"],
        config["training"]["num_envs"],
        compressed=replay["storage"] == "compressed",
        prioritized=replay["prioritized"],
    )


def check_memory(config: Config) -> None:
    """Refuse a run that does not fit, with the largest capacity that would."""
    available = int(psutil.virtual_memory().available * config["hardware"]["memory_fraction"])
    needed = memory_needed(config)
    if needed <= available:
        return
    capacity = config["replay"]["capacity"]
    per_transition = (needed - FIXED_BYTES) / capacity
    fits = max(0, int((available - FIXED_BYTES) / per_transition) // 1000 * 1000)
    raise UsageError(
        f"replay.capacity={capacity} needs {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB can be used; "
        f"the largest capacity that fits is {fits}, or try replay.storage=compressed"
    )
