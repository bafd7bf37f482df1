"""The composition root: config → parts → trainer. Below this module nobody sees a config."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

from retrograd.config import Config, ConfigManager
from retrograd.core.errors import UsageError
from retrograd.core.schedules import Constant, Linear, WarmUp
from retrograd.core.seeding import Streams
from retrograd.core.types import ContinuousActions, DiscreteActions, EnvSpec
from retrograd.envs.factory import EnvironmentFactory
from retrograd.envs.games import find_game
from retrograd.envs.protocol import AtariProtocol
from retrograd.experiments.reference import baseline

if TYPE_CHECKING:
    import torch

    from retrograd.core.protocols import Agent, Replay, VecEnv
    from retrograd.training.checkpoint import Checkpoint
    from retrograd.training.run import Run
    from retrograd.training.trainer import Trainer
    from retrograd.training.video import Viewer

__all__ = ["Builder", "ConfigManager", "Judge", "build_trainer", "memory_needed", "run_folder"]

# what Python, torch, the emulators and the network take beside the replay, measured on the default run
FIXED_BYTES = 620_000_000


class Builder:
    """Makes the parts a config asks for; ``env`` replaces the config's environment by the caller's own."""

    def __init__(self, config: Config, *, env: Any = None) -> None:
        self.config = config
        self.env = env if env is not None else config["env"]["game_id"]
        self.streams = Streams(config["seed"])
        self.factory = EnvironmentFactory()

    # environments ---------------------------------------------------------------------------------------------

    def protocol(self, *, training: bool) -> AtariProtocol | None:
        """How Atari is played; None for environments that are not Atari."""
        values = self.config["env_protocol"]
        phase = "train" if training else "eval"
        return AtariProtocol(
            repeat_action_probability=values["repeat_action_probability"],
            frameskip=values["frameskip"],
            action_repeat=values["action_repeat"],
            full_action_space=values["full_action_space"],
            noop_max=values["noop_max"],
            fire_reset=values["fire_reset"],
            terminal_on_life_loss=values[f"terminal_on_life_loss_{phase}"],
            max_episode_frames=values["max_episode_frames" if training else "eval_max_episode_frames"],
            reward_clip=training and self.config["preset"]["reward_clip"],
            screen_size=values["screen_size"],
            frame_stack=self.config["agent"]["frame_stack"],
        )

    def environments(self) -> VecEnv:
        """The rows the agent learns on."""
        training, hardware = self.config["training"], self.config["hardware"]
        return self.factory.create_vec(
            self.env,
            num_envs=training["num_envs"],
            protocol=self.protocol(training=True),
            seed=self.streams.integer("environments"),
            backend=hardware["backend"],
            threads=hardware["env_threads"] or 0,
            workers=hardware["workers"],
            max_episode_steps=training["max_episode_steps"],
        )

    def evaluation_environments(self, step: int) -> VecEnv:
        """Fresh rows whose seed depends on the run's seed and the step alone."""
        hardware = self.config["hardware"]
        return self.factory.create_vec(
            self.env,
            num_envs=self.config["eval"]["num_envs"],
            protocol=self.protocol(training=False),
            seed=self.streams.integer(f"evaluation {step}"),
            backend=hardware["backend"],
            threads=hardware["env_threads"] or 0,
        )

    def viewer(self, step: int) -> Viewer:
        return self.factory.create_viewer(
            self.env, protocol=self.protocol(training=False), seed=self.streams.integer(f"video {step}")
        )

    # agents ---------------------------------------------------------------------------------------------------

    def device(self) -> torch.device:
        import torch

        name = self.config["hardware"]["device"]
        if name == "auto":
            name = "cuda" if torch.cuda.is_available() else "cpu"
        if name.startswith("cuda") and not torch.cuda.is_available():
            raise UsageError(f"hardware.device={name} needs CUDA, and torch sees none here; use cpu or auto")
        if name == "mps" and not torch.backends.mps.is_available():
            raise UsageError("hardware.device=mps needs Apple's Metal, and torch sees none here; use cpu or auto")
        return torch.device(name)

    def agent(self, spec: EnvSpec) -> Agent:
        from retrograd.agents import ConstantAgent, RandomAgent

        kind = self.config["agent"]["kind"]
        if kind == "random":
            return RandomAgent(spec.action, self.streams["exploration"])
        if kind == "constant":
            return ConstantAgent(_constant_action(self.config["agent"]["action"], spec))
        return self._value_agent(spec)

    def _value_agent(self, spec: EnvSpec) -> Agent:
        import torch

        from retrograd.agents import ValueAgent
        from retrograd.agents.dqn import DQNLoss
        from retrograd.exploration import EpsilonGreedy
        from retrograd.networks import make_optimizer
        from retrograd.networks.q_network import make_q_network

        agent, preset, hardware = self.config["agent"], self.config["preset"], self.config["hardware"]
        if not isinstance(spec.action, DiscreteActions):
            raise UsageError(f"agent={agent['name']} needs discrete actions; {spec.name} has continuous ones")
        torch.manual_seed(self.streams.integer("network"))
        network = make_q_network(
            spec.obs, spec.action.n, network=agent["network"], channels_last=hardware["channels_last"]
        ).to(self.device())
        optimizer = make_optimizer(
            preset["optimizer"],
            network,
            lr=preset["lr"],
            adam_eps=preset["adam_eps"],
            rmsprop_decay=preset["rmsprop_decay"],
            rmsprop_momentum=preset["rmsprop_momentum"],
            rmsprop_eps=preset["rmsprop_eps"],
            fused=hardware["fused_optimizer"],
        )
        explorer = partial(EpsilonGreedy, num_actions=spec.action.n)
        return ValueAgent(
            network,
            DQNLoss(double=agent["double"], huber=preset["loss"] == "huber"),
            optimizer,
            explorer=explorer(self._epsilon(spec), rng=self.streams["exploration"]),
            eval_explorer=explorer(Constant(self.config["eval"]["epsilon"]), rng=self.streams["evaluation"]),
            target_update_updates=agent["target_update_freq"],
            max_grad_norm=agent["max_grad_norm"],
            loss_reduction=preset["loss_reduction"],
        )

    def _epsilon(self, spec: EnvSpec) -> WarmUp:
        preset, warmup = self.config["preset"], self.config["training"]["warmup_random_steps"]
        decay_steps = preset["epsilon_decay_frames"] // spec.frames_per_step
        decay = Linear(preset["epsilon_start"], preset["epsilon_end"], decay_steps, begin_steps=warmup)
        return WarmUp(1.0, warmup, decay)

    # replay and run -------------------------------------------------------------------------------------------

    def replay(self, spec: EnvSpec) -> Replay:
        from retrograd.replay import NStep, RawStorage, Replay, Uniform

        agent, values, num_envs = self.config["agent"], self.config["replay"], self.config["training"]["num_envs"]
        storage = RawStorage(spec, values["capacity"], num_envs)
        sampler = Uniform()
        return Replay(storage, sampler, NStep(1, agent["gamma"]), self.streams["replay"], self.device())

    def loop(self, agent: Agent, envs: VecEnv, run: Run) -> Any:
        """A function that begins the loop of the agent's kind, and what it adds to the log rows."""
        from retrograd.replay.null import NoReplay
        from retrograd.training.off_policy import off_policy

        values = self.config["agent"]
        if values["kind"] != "value":
            idle = {"batch_size": 1, "start_size": 1, "updates_per_step": Fraction(0)}
            return partial(off_policy, agent, envs, NoReplay(), run, **idle), dict
        replay = self.replay(envs.spec)
        begin = partial(
            off_policy,
            agent,
            envs,
            replay,
            run,
            batch_size=values["batch_size"],
            start_size=values["replay_start_size"],
            updates_per_step=Fraction(1, values["update_frequency"]),
        )
        return begin, lambda: {f"replay_{name}": value for name, value in replay.diagnostics().items()}


@dataclass(frozen=True)
class Judge:
    """Plays evaluation games and records videos of an agent, on environments made anew each time."""

    builder: Builder
    agent: Agent

    def evaluate(self, *, episodes: int, step: int) -> dict[str, Any]:
        from retrograd.training.evaluate import evaluate, summarize

        envs = self.builder.evaluation_environments(step)
        try:
            result = evaluate(self.agent, envs, episodes=episodes, step=step)
        finally:
            envs.close()
        config = self.builder.config
        return summarize(
            result,
            step=step,
            game=config["env"]["name"],
            protocol=config["env_protocol"]["name"],
            baseline=baseline(config["env"]["name"]),
        )

    def record(self, path: Path, *, step: int) -> Any:
        from retrograd.training.video import record_episode

        viewer = self.builder.viewer(step)
        try:
            return record_episode(self.agent, viewer, path, step=step)
        finally:
            viewer.close()


def build_trainer(
    config: Config, *, env: Any = None, command_line: Sequence[str] = (), quiet: bool = False
) -> Trainer:
    """Check what can be checked, make the run folder, then the parts."""
    check_memory(config)
    builder = Builder(config, env=env)
    device = builder.device()
    seed_everything(config["seed"])
    set_threads(config["hardware"]["torch_threads"])
    envs = builder.environments()
    try:
        return _assemble(builder, envs, str(device), command_line, quiet)
    except BaseException:
        envs.close()
        raise


def _assemble(builder: Builder, envs: VecEnv, device: str, command_line: Sequence[str], quiet: bool) -> Trainer:
    from retrograd.tracking.console import ConsoleSink, NullConsole
    from retrograd.tracking.csv import CsvSink
    from retrograd.tracking.logger import Logger
    from retrograd.training import durable
    from retrograd.training.checkpoint import CheckpointStore
    from retrograd.training.run import Run
    from retrograd.training.trainer import Trainer
    from retrograd.training.versions import collect_versions, write_versions

    config = builder.config
    agent = builder.agent(envs.spec)
    plan = make_plan(config, envs.spec)
    folder = run_folder(config)
    (folder / ".hydra").mkdir(parents=True)
    config_yaml = config.to_yaml()
    durable.write_text(folder / ".hydra" / "config.yaml", config_yaml)
    write_versions(folder, collect_versions(command_line or sys.argv, device=device))
    progress = NullConsole() if quiet else ConsoleSink(plan.total_steps, prefill_until_step=plan.warmup_steps)
    logger = Logger([CsvSink(folder), progress])
    run = Run(
        plan,
        on_episode=lambda episode, step, _: logger.log_episode(
            episode, step=step, env_frames=step * plan.frames_per_step
        ),
        on_update=lambda update: logger.tracker.update(update.metrics),
    )
    loop, log_extras = builder.loop(agent, envs, run)
    return Trainer(
        agent,
        envs,
        run,
        loop,
        folder=folder,
        config_yaml=config_yaml,
        logger=logger,
        progress=progress,
        judge=Judge(builder, agent),
        store=CheckpointStore(folder),
        streams=builder.streams,
        light_episodes=config["eval"]["light_episodes"],
        full_episodes=config["eval"]["full_episodes"],
        record_video=config["eval"]["record_video"],
        log_extras=log_extras,
    )


def make_plan(config: Config, spec: EnvSpec) -> Any:
    """Frames of the config become steps of the run."""
    from retrograd.training.run import Plan

    training, frames = config["training"], spec.frames_per_step

    def steps(key: str) -> int | None:
        return None if training[key] is None else max(1, training[key] // frames)

    return Plan(
        total_steps=-(-training["total_env_frames"] // frames),
        frames_per_step=frames,
        log_every_steps=training["log_every_steps"],
        warmup_steps=training["warmup_random_steps"] if config["agent"]["kind"] == "value" else 0,
        total_episodes=training["total_episodes"],
        light_eval_every_steps=steps("light_eval_every_frames"),
        full_eval_every_steps=steps("full_eval_every_frames"),
        eval_every_episodes=training["eval_every_episodes"],
        checkpoint_every_episodes=training["checkpoint_every_episodes"],
    )


def restore_agent(checkpoint: Checkpoint, config: Config, *, env: Any = None) -> tuple[Builder, Agent]:
    """The agent of a checkpoint, ready to play."""
    builder = Builder(config, env=env)
    seed_everything(config["seed"])
    set_threads(config["hardware"]["torch_threads"])
    viewer = builder.evaluation_environments(checkpoint.step)
    spec = viewer.spec
    viewer.close()
    agent = builder.agent(spec)
    for name, part in agent.parts.items():
        part.load_state_dict(checkpoint.parts[name])
    return builder, agent


def run_folder(config: Config) -> Path:
    """Where the run goes; refused when something is there already."""
    name = config["run_name"]
    parent = Path(config["output_dir"])
    if name is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        base = f"{config['env']['name'].replace('/', '_')}_{config['agent']['name']}_seed{config['seed']}_{stamp}"
        name = next(f"{base}{suffix}" for suffix in _suffixes() if not (parent / f"{base}{suffix}").exists())
    folder = parent / name
    if folder.exists():
        raise UsageError(f"the output folder {folder} exists already; choose another run_name or remove it")
    return folder


def _suffixes() -> Any:
    yield ""
    number = 2
    while True:
        yield f"_{number}"
        number += 1


def memory_needed(config: Config) -> int:
    """Peak bytes of the run, known before anything is allocated."""
    from retrograd.replay.memory import bytes_needed

    if config["agent"]["kind"] != "value":
        return FIXED_BYTES
    replay = config["replay"]
    needed = bytes_needed(
        planned_spec(config),
        replay["capacity"],
        config["training"]["num_envs"],
        compressed=replay["storage"] == "compressed",
        prioritized=replay["prioritized"],
    )
    return FIXED_BYTES + needed


def planned_spec(config: Config) -> EnvSpec:
    """What the environment will look like, without making it: exact for Atari."""
    from retrograd.core.types import ArraySpec

    protocol, name = config["env_protocol"], config["env"]["game_id"]
    if find_game(name) is None:
        return EnvSpec(name, ArraySpec((64,), np.dtype(np.float32)), DiscreteActions(18))
    shape = (config["agent"]["frame_stack"], protocol["screen_size"], protocol["screen_size"])
    return EnvSpec(name, ArraySpec(shape, np.dtype(np.uint8)), DiscreteActions(18), shape[0], protocol["action_repeat"])


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


def seed_everything(seed: int) -> None:
    """Global generators, for code that asks them; ours come from named streams."""
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - third-party environments may use the old generator
    torch.manual_seed(seed)


def set_threads(torch_threads: int | None) -> None:
    import torch

    torch.set_num_threads(torch_threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


def _constant_action(action: int, spec: EnvSpec) -> Any:
    if isinstance(spec.action, ContinuousActions):
        return np.clip(np.full_like(spec.action.low, action), spec.action.low, spec.action.high)
    if action >= spec.action.n:
        raise UsageError(f"agent.action={action} must be from 0 to {spec.action.n - 1} in {spec.name}")
    return action


def describe_protocol(config: Config) -> str:
    """How the game is played, in words: it decides which scores may be compared."""
    protocol = config["env_protocol"]
    if find_game(config["env"]["game_id"]) is None:
        return f"{config['env']['game_id']}: no Atari game, so no Atari step is applied"
    sticky = protocol["repeat_action_probability"]
    lives = "ends an episode for the learner" if protocol["terminal_on_life_loss_train"] else "is not signalled"
    return (
        f"{config['env']['game_id']}, {protocol['name']}: "
        f"{f'sticky actions {sticky}' if sticky else 'no sticky actions'}, "
        f"action repeat {protocol['action_repeat']}, up to {protocol['noop_max']} no-ops, a lost life {lives}, "
        f"at most {protocol['max_episode_frames']} frames a game ({protocol['eval_max_episode_frames']} in evaluation); "
        f"track {config['track']}"
    )
