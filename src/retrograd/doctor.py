"""What works on this machine, and what a full run would need."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import psutil

from retrograd.config import Config, ConfigManager
from retrograd.core.errors import RetrogradError

if TYPE_CHECKING:
    from retrograd.core.protocols import Agent
    from retrograd.core.types import EnvSpec

EXTRAS = {
    "plots": ("matplotlib",),
    "sweep": ("optuna", "pyarrow", "matplotlib"),
    "watch": ("pygame",),
    "dashboard": ("streamlit", "plotly"),
    "minatar": ("minatar",),
    "gpu": ("pynvml",),
    "tensorboard": ("tensorboard",),
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
}


def examine(overrides: Sequence[str] = ()) -> tuple[str, bool]:
    """The report, and whether a run with this config can start here."""
    run = _PlannedRun(ConfigManager().compose(overrides))
    checks: list[tuple[str, Callable[[], str]]] = [
        ("python", lambda: f"{platform.python_version()} on {platform.machine()}"),
        ("torch", _torch),
        ("cores", lambda: f"{len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()}"),
        ("memory", _memory),
        ("emulator", _emulator),
        ("video", _video),
        ("fast tree", _tree),
        ("fast networks", _network_kernels),
        ("run device", run.device),
        ("run trackers", run.trackers),
        ("run memory", run.memory),
        ("run game", run.environment),
        ("run agent", run.describe_agent),
        ("run disk", run.disk),
        ("run folder", run.folder),
    ]
    lines, healthy = [], True
    for name, check in checks:
        try:
            lines.append(f"ok    {name:<13} {check()}")
        except Exception as error:  # a doctor reports every illness instead of catching it
            healthy = False
            lines.append(f"FAIL  {name:<13} {error if isinstance(error, RetrogradError) else repr(error)}")
    lines += _extras()
    return "\n".join(lines), healthy


def _torch() -> str:
    import torch

    return f"{torch.__version__}, {torch.get_num_threads()} threads"


def _memory() -> str:
    memory = psutil.virtual_memory()
    return f"{memory.total / 1e9:.1f} GB, {memory.available / 1e9:.1f} GB free"


def _emulator() -> str:
    from retrograd.envs.games import game_names

    return f"ale-py {importlib.metadata.version('ale-py')}, {len(game_names())} games"


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


class _PlannedRun:
    """A run that does not begin: what it would check of itself is checked, by its own means."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def device(self) -> str:
        from retrograd.build import Builder
        from retrograd.build.hardware import check_switches, set_allocators
        from retrograd.build.pace import refuse_paceless

        device = Builder(self.config).device()
        check_switches(self.config, device)
        set_allocators(self.config)
        if self.config["hardware"]["measure_threads"]:
            refuse_paceless(self.config, "hardware.measure_threads=true")
        return f"{device} (hardware.device={self.config['hardware']['device']})"

    def trackers(self) -> str:
        from retrograd.build.trackers import check_trackers

        check_trackers(self.config)
        names = [name for name in ("tensorboard", "wandb", "mlflow") if self.config[name]["enabled"]]
        return f"{', '.join(names) or 'none'} beside the CSV files"

    def memory(self) -> str:
        from retrograd.build import check_memory, memory_needed

        check_memory(self.config)
        named = f"env={self.config['env']['name']} agent={self.config['agent']['name']}"
        return f"{memory_needed(self.config) / 1e9:.2f} GB at its peak, for {named}"

    @cached_property
    def _spec(self) -> EnvSpec:
        """Of as few games as will do: one, or one in each half."""
        from retrograd.build import Builder
        from retrograd.build.halves import check_halves

        check_halves(self.config)
        rows = 2 if self.config["training"]["double_buffered"] else 1
        small = self.config.with_values({"training.num_envs": rows, "hardware.workers": False})
        envs = Builder(small).environments()
        envs.close()
        return envs.spec

    def environment(self) -> str:
        return f"{self.config['env']['game_id']} starts; observation {getattr(self._spec.obs, 'shape', 'dict')}"

    @cached_property
    def _agent(self) -> Agent:
        from retrograd.build import Builder

        return Builder(self.config).agent(self._spec)

    def describe_agent(self) -> str:
        return f"{self.config['agent']['name']}, saved as {', '.join(self._agent.parts) or 'nothing'}"

    def disk(self) -> str:
        from retrograd.build import run_folder
        from retrograd.build.disk_space import check_disk_of, checkpoints_kept, saves_replay

        folder, kept = run_folder(self.config), checkpoints_kept(self.config)
        check_disk_of(self.config, folder, self._agent.parts)
        place = next(place for place in folder.absolute().parents if place.exists())
        beside = " and the replay" if saves_replay(self.config) else ""
        return f"enough for {kept} checkpoints{beside}: {shutil.disk_usage(place).free / 1e9:.0f} GB free"

    def folder(self) -> str:
        from retrograd.build import run_folder
        from retrograd.cli.targets import check_target

        return f"{check_target(run_folder(self.config), 'folder')} can be made"


def _extras() -> Iterator[str]:
    for extra, modules in EXTRAS.items():
        if all(importlib.util.find_spec(module) is not None for module in modules):
            yield f"ok    {'extra':<13} {extra} ({', '.join(modules)})"
        else:
            yield f'--    {"extra":<13} {extra}: pip install "retrograd[{extra}]"'
