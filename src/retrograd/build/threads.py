"""Thread counts that suit this machine and this run: tried once, remembered, and written into the run's config.

Math threads and emulator threads share the cores, and how many of each is best depends on both: small updates lose to
the cost of sharing their work, and emulators that run under the update take its cores away.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from retrograd.build.pace import measure_pace, refuse_paceless
from retrograd.config import Config
from retrograd.core.errors import UsageError

KEYS = ("torch_threads", "env_threads")
SECONDS = 2.0  # under the clock, for each pair of counts

log = logging.getLogger(__name__)
Speed = Callable[[int, int], float]  # steps a second with so many math threads and so many emulator threads


def with_measured_threads(config: Config, env: Any = None) -> Config:
    """``hardware.measure_threads``: the same config with the counts that were null filled in."""
    hardware = config["hardware"]
    if not hardware["measure_threads"]:
        return config
    wanted, found = [key for key in KEYS if hardware[key] is None], dict[str, int]()
    refuse_paceless(config, "hardware.measure_threads=true")
    if env is not None and not isinstance(env, str):
        raise UsageError(
            "hardware.measure_threads=true plays games of its own to measure, and the environment that was handed in "
            "cannot be made anew; give hardware.torch_threads and hardware.env_threads instead"
        )
    if wanted:
        found, how = _find(config if env is None else config.with_values({"env.game_id": env}))
        said = " ".join(f"hardware.{key}={found[key]}" for key in wanted)
        print(f"retrograd: {said} ({how})", file=sys.stderr)
    changes = {f"hardware.{key}": found[key] for key in wanted}
    return config.with_values({**changes, "hardware.measure_threads": False})


def _find(config: Config) -> tuple[dict[str, int], str]:
    from retrograd.training import durable

    path, key = cache_file(), _key(config)
    known = _read(path)
    if key in known:
        return known[key], f"measured before, kept in {path}"
    begun = time.monotonic()
    best = choose(lambda torch_threads, env_threads: measure(config, torch_threads, env_threads), config)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        durable.write_json(path, {**_read(path), key: best})
    except OSError as error:
        log.warning("the thread counts could not be kept in %s, they will be measured again: %s", path, error)
    return best, f"measured in {time.monotonic() - begun:.0f} seconds"


def choose(speed: Speed, config: Config) -> dict[str, int]:
    """The fastest counts, one after the other: math threads beside all emulator threads, then emulator threads."""
    hardware, speed = config["hardware"], cache(speed)
    omp = os.environ.get("OMP_NUM_THREADS", "")
    fixed = hardware["torch_threads"] or (int(omp) if omp.isdecimal() and int(omp) else None)
    for_torch = [fixed] if fixed else candidates()
    for_envs = [hardware["env_threads"]] if hardware["env_threads"] else candidates()
    torch_threads = max(for_torch, key=lambda count: speed(count, for_envs[-1]))
    env_threads = max(for_envs, key=lambda count: speed(torch_threads, count))
    return {"torch_threads": torch_threads, "env_threads": env_threads}


def candidates() -> list[int]:
    """1, 2, 4, … and all the cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return sorted({*(2**power for power in range(cores.bit_length()) if 2**power < cores), cores})


def measure(config: Config, torch_threads: int, env_threads: int) -> float:
    """Steps a second of a run like this one with so many threads."""
    threads = {"hardware.torch_threads": torch_threads, "hardware.env_threads": env_threads}
    return measure_pace(config.with_values(threads), SECONDS).steps_per_second


def cache_file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "retrograd" / "threads.json"


def _read(path: Path) -> dict[str, dict[str, int]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    entries = content.items() if isinstance(content, dict) else ()
    return {
        key: one for key, one in entries if isinstance(one, dict) and all(_is_count(one.get(name)) for name in KEYS)
    }


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _key(config: Config) -> str:
    """What the best counts depend on: the machine, torch, the game and what is learned from it."""
    import torch

    values = config.to_dict()
    about = {
        "machine": [platform.node(), platform.machine(), torch.backends.cpu.get_cpu_capability(), candidates()],
        "torch": torch.__version__,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "game": values["env"]["game_id"],
        "training": [values["training"][key] for key in ("num_envs", "double_buffered", "null_learner")],
        **{group: values[group] for group in ("agent", "replay", "hardware")},
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()[:16]
