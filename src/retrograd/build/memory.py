"""The memory a run will need, known before anything is allocated."""

from __future__ import annotations

import math

import psutil

from retrograd.build.protocol import planned_spec
from retrograd.build.workers import slots_per_worker
from retrograd.config import Config
from retrograd.core.errors import UsageError
from retrograd.replay.memory import bytes_needed

# what Python, torch, the emulators and the network take beside the replay, measured on the default run
FIXED_BYTES = 620_000_000
WORKER_BYTES = 360_000_000  # a process that plays for A3C or IMPALA, measured with 16 games of Pong


def memory_needed(config: Config) -> int:
    """Bytes of the run at its peak: when the replay or the rollout is full."""
    if "rollout_steps" in config["agent"]:
        return FIXED_BYTES + _rollout_bytes(config) + _worker_bytes(config)
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
    if config["agent"]["kind"] != "value":
        raise UsageError(
            f"agent={config['agent']['name']} needs {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB can be used; "
            f"training.num_envs={config['training']['num_envs']} can be lowered"
        )
    capacity = config["replay"]["capacity"]
    per_transition = (needed - FIXED_BYTES) / capacity
    fits = max(0, int((available - FIXED_BYTES) / per_transition) // 1000 * 1000)
    raise UsageError(
        f"replay.capacity={capacity} needs {needed / 1e9:.1f} GB and {available / 1e9:.1f} GB can be used; "
        f"the largest capacity that fits is {fits}, or try replay.storage=compressed"
    )


def _rollout_bytes(config: Config) -> int:
    """What is learned from at once, as it was seen and once more as shuffled minibatches."""
    return 2 * int(config["agent"].get("rollouts_per_update", 1)) * _one_rollout(config)


def _worker_bytes(config: Config) -> int:
    """Processes, and the rollouts that IMPALA's have in shared memory."""
    agent = config["agent"]
    slots = slots_per_worker(agent) if "rollouts_per_update" in agent else 1
    return int(agent.get("workers", 0)) * (WORKER_BYTES + slots * _one_rollout(config))


def _one_rollout(config: Config) -> int:
    obs = planned_spec(config).obs
    assert not isinstance(obs, dict)
    rows = config["agent"]["rollout_steps"] * config["training"]["num_envs"]
    step_bytes: int = math.prod(obs.shape) * obs.dtype.itemsize
    return int(rows) * step_bytes
