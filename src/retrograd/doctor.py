"""What works on this machine, and what a full run would need."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from retrograd.config import Config, ConfigManager
from retrograd.core.errors import RetrogradError

EXTRAS = {
    "plots": "matplotlib",
    "watch": "pygame",
    "gpu": "pynvml",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
}


def examine(overrides: Sequence[str] = ()) -> tuple[str, bool]:
    """The report, and whether a run with this config can start here."""
    config = ConfigManager().compose(overrides)
    checks: list[tuple[str, Callable[[], str]]] = [
        ("python", lambda: f"{platform.python_version()} on {platform.machine()}"),
        ("torch", _torch),
        ("device", lambda: _device(config)),
        ("cores", lambda: f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}"),
        ("memory", _memory),
        ("emulator", _emulator),
        ("environment", lambda: _environment(config)),
        ("video", _video),
        ("fast tree", _tree),
        ("fast networks", _network_kernels),
        ("run memory", lambda: _run_memory(config)),
        ("run disk", lambda: _run_disk(config)),
    ]
    lines, healthy = [], True
    for name, check in checks:
        try:
            lines.append(f"ok    {name:<12} {check()}")
        except Exception as error:  # a doctor reports every illness instead of catching it
            healthy = False
            lines.append(f"FAIL  {name:<12} {error if isinstance(error, RetrogradError) else repr(error)}")
    lines += _extras()
    return "\n".join(lines), healthy


def _torch() -> str:
    import torch

    return f"{torch.__version__}, {torch.get_num_threads()} threads"


def _device(config: Config) -> str:
    from retrograd.build import Builder

    return f"{Builder(config).device()} (hardware.device={config['hardware']['device']})"


def _memory() -> str:
    memory = psutil.virtual_memory()
    return f"{memory.total / 1e9:.1f} GB, {memory.available / 1e9:.1f} GB free"


def _emulator() -> str:
    from retrograd.envs.games import game_names

    return f"ale-py {importlib.metadata.version('ale-py')}, {len(game_names())} games"


def _environment(config: Config) -> str:
    from retrograd.build import Builder

    small = config.with_values({"training.num_envs": 1, "hardware.workers": False})
    envs = Builder(small).environments()
    try:
        return f"{config['env']['game_id']} starts; observation {getattr(envs.spec.obs, 'shape', 'dict')}"
    finally:
        envs.close()


def _video() -> str:
    import imageio_ffmpeg

    return f"ffmpeg {imageio_ffmpeg.get_ffmpeg_version()}"


def _tree() -> str:
    from retrograd.replay.gather import KERNELS

    if KERNELS is None:
        return "not compiled: the replay uses numpy, slower with the same results"
    return "compiled"


def _network_kernels() -> str:
    from retrograd.networks.kernels import KERNELS

    if KERNELS is None:
        return "not compiled: torch scales pictures and does the steps of RMSprop, slower with the same results"
    return "compiled"


def _run_memory(config: Config) -> str:
    from retrograd.build import check_memory, memory_needed

    check_memory(config)
    run = f"env={config['env']['name']} agent={config['agent']['name']}"
    return f"{memory_needed(config) / 1e9:.2f} GB at its peak, for {run}"


def _run_disk(config: Config) -> str:
    # weights, optimizer and a video for each full evaluation
    every = config["training"]["full_eval_every_frames"]
    checkpoints = 1 + (config["training"]["total_env_frames"] // every if every else 0)
    needed = checkpoints * 30e6
    folder = Path(config["output_dir"])
    free = shutil.disk_usage(next(place for place in (folder, *folder.absolute().parents) if place.exists())).free
    if free < needed:
        raise RetrogradError(
            f"about {needed / 1e9:.1f} GB for {checkpoints} checkpoints, only {free / 1e9:.1f} GB free"
        )
    return f"about {needed / 1e9:.1f} GB for {checkpoints} checkpoints, {free / 1e9:.0f} GB free"


def _extras() -> Iterator[str]:
    for extra, module in EXTRAS.items():
        if importlib.util.find_spec(module) is not None:
            yield f"ok    extra        {extra} ({module})"
        else:
            yield f'--    extra        {extra}: pip install "retrograd[{extra}]"'
