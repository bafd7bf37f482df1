"""From a config to a trainer with its run folder."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrograd.build.builder import Builder, Judge, find_device, seed_everything, seed_globals, set_threads, use_device
from retrograd.build.disk_space import check_disk_of, saves_replay
from retrograd.build.hardware import check_switches, compile_agent, set_allocators, with_precision
from retrograd.build.memory import check_memory
from retrograd.build.threads import with_measured_threads
from retrograd.build.trackers import check_trackers, open_trackers
from retrograd.config import Config
from retrograd.core.errors import ResourceError, UsageError
from retrograd.core.types import EnvSpec

if TYPE_CHECKING:
    from retrograd.core.protocols import VecEnv
    from retrograd.replay.saving import ReplaySaver
    from retrograd.tracking.console import ConsoleSink, NullConsole
    from retrograd.tracking.logger import Logger
    from retrograd.training.checkpoint import CheckpointStore
    from retrograd.training.lock import RunLock
    from retrograd.training.loop import Loop
    from retrograd.training.run import Plan, Run
    from retrograd.training.trainer import Trainer


def build_trainer(config: Config, *, env: Any = None, command_line: Sequence[str] = (), quiet: bool = False) -> Trainer:
    """Check what can be checked, make the parts, and only then the run folder."""
    planned = run_folder(config)
    config = with_measured_threads(config, env)
    config = with_precision(config, find_device(config))
    builder, envs = open_environments(config, env)
    locks: list[RunLock] = []

    def open_folder() -> RunLock:
        locks.append(_open_folder(run_folder(config), builder, command_line or sys.argv))
        return locks[0]

    try:
        return assemble(builder, envs, open_folder, place=planned, quiet=quiet)
    except BaseException as error:
        envs.close()
        for lock in locks:
            lock.release()
            if isinstance(error, UsageError):
                shutil.rmtree(lock.folder)  # made a moment ago, by us
        raise


def open_environments(config: Config, env: Any) -> tuple[Builder, VecEnv]:
    """What comes first in every run: enough memory, a device, seeds, threads, and something to play."""
    check_memory(config)
    check_trackers(config)
    builder = Builder(config, env=env)
    check_switches(config, builder.device())
    set_allocators(config)
    use_device(builder.device())
    seed_everything(config["seed"])
    set_threads(config["hardware"]["torch_threads"])
    return builder, builder.environments()


def run_folder(config: Config) -> Path:
    """Where the run goes; refused when something is there already."""
    name, parent = config["run_name"], Path(config["output_dir"])
    if name is None:
        label = config["zoo"] or f"{config['env']['name'].replace('/', '_')}_{config['agent']['name']}"
        base = f"{label}_seed{config['seed']}_{time.strftime('%Y%m%d-%H%M%S')}"
        names = (base if number == 1 else f"{base}_{number}" for number in count(1))
        name = next(name for name in names if not (parent / name).exists())
    folder: Path = parent / name
    if folder.exists():
        raise _taken(folder)
    return folder


def _taken(folder: Path) -> UsageError:
    return UsageError(f"the output folder {folder} exists already; choose another run_name or remove it")


def make_plan(config: Config, spec: EnvSpec) -> Plan:
    """Frames of the config become steps of the run."""
    from retrograd.training.run import Plan

    training, frames = config["training"], spec.frames_per_step
    rollout_steps = config["agent"].get("rollout_steps")

    def steps(period: int | None) -> int | None:
        return None if period is None else max(1, period // frames)

    return Plan(
        total_steps=-(-training["total_env_frames"] // frames),
        frames_per_step=frames,
        log_every_steps=training["log_every_steps"],
        warmup_steps=training["warmup_random_steps"] if config["agent"]["kind"] == "value" else 0,
        total_episodes=training["total_episodes"],
        pause_at_steps=steps(training["pause_at_frames"]),
        light_eval_every_steps=steps(training["light_eval_every_frames"]),
        full_eval_every_steps=steps(training["full_eval_every_frames"]),
        checkpoint_every_steps=steps(config["checkpoint"]["every_frames"]),
        eval_every_episodes=training["eval_every_episodes"],
        checkpoint_every_episodes=training["checkpoint_every_episodes"],
        sync_every_steps=rollout_steps and rollout_steps * training["num_envs"],
    )


def assemble(
    builder: Builder,
    envs: VecEnv,
    open_folder: Callable[[], RunLock],
    *,
    place: Path,
    quiet: bool,
    start_step: int = 0,
) -> Trainer:
    """The trainer of a new run or of one that goes on; ``open_folder`` is asked last, when all else is there.

    ``place`` is where the disk must have room: the run's folder, there already or not.
    """
    from retrograd.replay.saving import ReplaySaver
    from retrograd.tracking.csv import CsvSink
    from retrograd.tracking.logger import Logger
    from retrograd.training.loop import Loop
    from retrograd.training.resources import MemoryWatch
    from retrograd.training.trainer import Trainer

    config = builder.config
    agent = builder.agent(envs.spec)
    compile_agent(builder, agent, envs.spec)
    plan = make_plan(config, envs.spec)
    progress = _progress(plan, start_step, quiet=quiet)
    logger = Logger([progress])
    run = _reporting(plan, logger)
    loop = _with_machine_metrics(Loop(*builder.loop(agent, envs, run)), builder, envs)
    check_disk_of(config, place, agent.parts)
    lock = open_folder()
    folder = lock.folder
    for sink in (CsvSink(folder, update_columns=builder.update_columns()), *open_trackers(config, folder)):
        logger.add(sink)
    seed_globals(config["seed"])
    replay_files = ReplaySaver(folder / "replay") if loop.replay is not None else None
    return Trainer(
        agent,
        envs,
        run,
        loop,
        folder=folder,
        config_yaml=config.to_yaml(),
        logger=logger,
        progress=progress,
        judge=Judge(builder, agent, stop=lambda: run.stop_requested),
        store=_checkpoints(config, folder, replay_files),
        streams=builder.streams,
        light_episodes=config["eval"]["light_episodes"],
        full_episodes=config["eval"]["full_episodes"],
        record_video=config["eval"]["record_video"],
        replay_files=replay_files if saves_replay(config) else None,
        horizon=builder.horizon(envs.spec),
        lock=lock,
        memory=MemoryWatch(config["hardware"]["memory_watch_fraction"]),
    )


def _reporting(plan: Plan, logger: Logger) -> Run:
    """A run that tells the logger of its games and updates."""
    from retrograd.training.run import Run

    return Run(
        plan,
        on_episode=lambda episode, step, _: logger.log_episode(
            episode, step=step, env_frames=step * plan.frames_per_step
        ),
        on_update=lambda update: logger.tracker.update(update.metrics),
    )


def _progress(plan: Plan, start_step: int, *, quiet: bool) -> ConsoleSink | NullConsole:
    from retrograd.tracking.console import ConsoleSink, NullConsole

    if quiet:
        return NullConsole()
    return ConsoleSink(plan.total_steps, prefill_until_step=plan.warmup_steps, start_step=start_step)


def _with_machine_metrics(loop: Loop, builder: Builder, envs: VecEnv) -> Loop:
    """The loop's log lines, with what the machine does and how often workers had to be started again."""
    from retrograd.tracking.system import SystemMonitor

    system = SystemMonitor(builder.gpu_uuid())

    def extras() -> dict[str, float]:
        restarts = {"env_restarts": getattr(envs, "restarts", 0)} if builder.config["hardware"]["workers"] else {}
        return {**loop.log_extras(), **restarts, **system.sample()}

    return loop._replace(log_extras=extras)


def _checkpoints(config: Config, folder: Path, replay_files: ReplaySaver | None) -> CheckpointStore:
    from retrograd.training.checkpoint import CheckpointStore
    from retrograd.training.rotation import Rotation

    kept = Rotation(config["checkpoint"]["keep_last"], config["checkpoint"]["keep_every_frames"])
    return CheckpointStore(folder, kept, keep_replay_files=None if replay_files is None else replay_files.keep_only)


def _open_folder(folder: Path, builder: Builder, command_line: Sequence[str]) -> RunLock:
    """The config and the versions; only now does the run exist on disk, and it is ours."""
    from retrograd.training import durable
    from retrograd.training.lock import RunLock
    from retrograd.training.versions import collect_versions, write_versions

    try:
        (folder / ".hydra").mkdir(parents=True)
    except FileExistsError as error:  # another process made it since we looked
        raise _taken(folder) from error
    except OSError as error:
        raise UsageError(f"the output folder {folder} cannot be made: {error.strerror or error}") from error
    lock = RunLock(folder)
    try:
        durable.write_text(folder / ".hydra" / "config.yaml", builder.config.to_yaml())
        write_versions(folder, collect_versions(command_line, device=str(builder.device())))
    except BaseException as error:  # a folder without its config is no run, and would only keep its name taken
        lock.release()
        durable.remove_folder(folder)
        if isinstance(error, OSError):
            raise ResourceError(f"the config of {folder} cannot be written: {error.strerror or error}") from error
        raise
    return lock
