"""The parts a config asks for: environments, agent, loop; and the judge that plays evaluation games."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.build.halves import check_halves
from retrograd.build.normalizers import Normalizers
from retrograd.build.protocol import atari_protocol
from retrograd.config import Config
from retrograd.core.errors import CheckpointError, UsageError
from retrograd.core.schedules import Constant, Horizon, Schedule, WholeRun
from retrograd.core.seeding import Streams
from retrograd.core.types import EnvSpec
from retrograd.envs.factory import EnvironmentFactory, check_twin, twin
from retrograd.envs.flicker import Flicker
from retrograd.envs.games import find_game
from retrograd.envs.halves import Halves
from retrograd.envs.watchdog import Patience
from retrograd.experiments.reference import baseline
from retrograd.tracking.csv import COLUMNS

if TYPE_CHECKING:
    import torch

    from retrograd.core.protocols import Agent, VecEnv
    from retrograd.training.checkpoint import Checkpoint
    from retrograd.training.loop import Loop
    from retrograd.training.run import Run
    from retrograd.training.video import VideoInfo, Viewer

# a module for each kind of agent, imported when one is made: torch takes seconds
KINDS = {
    "value": "value",
    "ppo": "policy",
    "a2c": "policy",
    "a3c": "a3c",
    "impala": "impala",
    "recurrent_ppo": "recurrent",
    "pqn": "pqn",
    "random": "idle",
    "constant": "idle",
}

# what an agent can be played without; a checkpoint of a run has all of them
TRAINING_PARTS = ("target", "optimizer", "learner", "counters", "noise", "scaler")


def find_device(config: Config) -> torch.device:
    """What ``hardware.device`` means here; refused where there is no such thing."""
    import torch

    name = config["hardware"]["device"]
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise UsageError(f"hardware.device={name} needs CUDA, and torch sees none here; use cpu or auto")
    if name == "mps" and not torch.backends.mps.is_available():
        raise UsageError("hardware.device=mps needs Apple's Metal, and torch sees none here; use cpu or auto")
    return torch.device(name)


class Builder:
    """Makes parts on request; ``env`` replaces the config's environment by the caller's own."""

    def __init__(self, config: Config, *, env: Any = None) -> None:
        self.config = config
        self.env = env if env is not None else config["env"]["game_id"]
        self.streams = Streams(config["seed"])
        self.factory = EnvironmentFactory()
        self.normalizers = Normalizers.of(config)
        self._horizon: Horizon | None = None
        self._kind = import_module(f"retrograd.build.{KINDS[config['agent']['kind']]}")

    def environments(self) -> VecEnv:
        """The rows the agent learns on."""
        check_halves(self.config)
        check_twin(self.env)
        num_envs = self.config["training"]["num_envs"]
        if not self.config["training"]["double_buffered"]:
            return self.normalizers.wrap_training(self._rows(num_envs, ""))
        return Halves(self._rows(num_envs // 2, ""), self._rows(num_envs // 2, " of the second half"))

    def _rows(self, num_envs: int, whose: str) -> VecEnv:
        training, hardware = self.config["training"], self.config["hardware"]
        envs = self.factory.create_vec(
            self.env,
            num_envs=num_envs,
            protocol=atari_protocol(self.config, training=True),
            seed=self.streams.integer("environments" + whose),
            backend=hardware["backend"],
            threads=hardware["env_threads"] or 0,
            workers=hardware["workers"],
            max_episode_steps=training["max_episode_steps"],
            patience=self._patience(),
        )
        return self._flicker(envs, self.streams["flicker" + whose])

    def evaluation_environments(self, step: int) -> VecEnv:
        """Fresh rows whose seed depends on the run's seed and the step alone."""
        hardware, seed = self.config["hardware"], self.streams.integer(f"evaluation {step}")
        envs = self.factory.create_vec(
            twin(self.env),
            num_envs=self.config["eval"]["num_envs"],
            protocol=atari_protocol(self.config, training=False),
            seed=seed,
            backend=hardware["backend"],
            threads=hardware["env_threads"] or 0,
            max_episode_steps=self._judged_steps(),
            patience=self._patience(),
        )
        return self.normalizers.wrap_evaluation(self._flicker(envs, Streams(seed)["flicker"]))

    def _judged_steps(self) -> int | None:
        """Training's limit, or a game without one of its own would be judged for ever; Atari's is the protocol's."""
        atari = find_game(self.config["env"]["game_id"]) is not None
        return None if atari else self.config["training"]["max_episode_steps"]

    def _flicker(self, envs: VecEnv, rng: np.random.Generator) -> VecEnv:
        probability = self.config["env_protocol"]["flicker_probability"]
        return Flicker(envs, probability, rng) if probability else envs

    def _patience(self) -> Patience:
        hardware = self.config["hardware"]
        return Patience(
            hardware["watchdog_seconds"], hardware["worker_timeout_seconds"], hardware["worker_restarts_per_hour"]
        )

    def viewer(self, step: int, *, with_lives: bool = False) -> Viewer:
        """One row with pictures; ``with_lives`` says of a lost life what training says of it."""
        seed = self.streams.integer(f"video {step}")
        protocol = atari_protocol(self.config, training=False)
        if with_lives:
            learned = atari_protocol(self.config, training=True).terminal_on_life_loss
            protocol = replace(protocol, terminal_on_life_loss=learned)
        viewer: Any = self.factory.create_viewer(
            twin(self.env, capture=True), protocol=protocol, seed=seed, max_episode_steps=self._judged_steps()
        )
        flickering = self._flicker(viewer, Streams(seed)["flicker"])
        return self.normalizers.wrap_evaluation(flickering)  # type: ignore[return-value]

    def horizon(self, spec: EnvSpec) -> Horizon:
        """The planned length of the run, one object for all schedules that follow it."""
        if self._horizon is None:
            self._horizon = Horizon(-(-self.config["training"]["total_env_frames"] // spec.frames_per_step))
        return self._horizon

    def over_run(self, spec: EnvSpec, start: float, end: float | None) -> Schedule:
        """A straight line over the whole run, or a constant."""
        return Constant(start) if end is None else WholeRun(start, end, self.horizon(spec))

    def falling(self, spec: EnvSpec, name: str) -> Schedule:
        """``agent.<name>``, on its way to ``agent.<name>_end`` as ``agent.held`` and ``agent.fall`` say."""
        agent = self.config["agent"]
        start, end = agent[name], agent[f"{name}_end"]
        if end is None:
            return Constant(start)
        geometric = agent.get("fall") == "geometric"
        return WholeRun(start, end, self.horizon(spec), agent.get("held", 0.0), geometric)

    def device(self) -> torch.device:
        return find_device(self.config)

    def staging(self) -> dict[str, Any]:
        """How batches come to the device."""
        return {"device": self.device(), "pin_memory": self.config["hardware"]["pin_memory"]}

    def gpu_uuid(self) -> str | None:
        """Which GPU the run learns on, by the name that every NVIDIA tool knows; None without one."""
        import torch

        device = self.device()
        return f"GPU-{torch.cuda.get_device_properties(device).uuid}" if device.type == "cuda" else None

    def agent(self, spec: EnvSpec) -> Agent:
        null = self.config["training"]["null_learner"]
        make = import_module("retrograd.build.idle").make_null_learner if null else self._kind.make_agent
        agent: Agent = make(self, spec)
        if self.normalizers:
            agent.parts["normalizers"] = self.normalizers
        return agent

    def update_columns(self) -> tuple[str, ...]:
        """The leading columns of the update log."""
        columns: tuple[str, ...] = getattr(self._kind, "UPDATE_COLUMNS", COLUMNS["update"])
        return columns

    def loop(self, agent: Agent, envs: VecEnv, run: Run) -> Loop:
        """The loop of the agent's kind: how to begin it, and what of it a checkpoint holds."""
        loop: Loop = self._kind.make_loop(self, agent, envs, run)
        return loop


@dataclass(frozen=True)
class Judge:
    """Plays evaluation games and records videos of an agent, on environments made anew each time."""

    builder: Builder
    agent: Agent
    stop: Callable[[], bool] = lambda: False  # asked all the time: a signal must not wait for the last game

    def __post_init__(self) -> None:
        # the agent may come from another builder, which saw the observations it was trained on
        self.builder.normalizers = self.agent.parts.get("normalizers", self.builder.normalizers)  # type: ignore[assignment]

    def evaluate(self, *, episodes: int, step: int) -> dict[str, Any]:
        from retrograd.training.evaluate import evaluate, summarize

        envs = self.builder.evaluation_environments(step)
        try:
            result = evaluate(self.agent, envs, episodes=episodes, step=step, stop=self.stop)
        finally:
            envs.close()
        config = self.builder.config
        return summarize(
            result,
            step=step,
            game=config["env"]["name"],
            protocol=config.protocol,
            baseline=baseline(config["env"]["name"]),
        )

    def record(self, path: Path, *, step: int) -> VideoInfo:
        from retrograd.training.video import record_episode

        viewer = self.builder.viewer(step)
        try:
            return record_episode(self.agent, viewer, path, step=step, stop=self.stop)
        finally:
            viewer.close()


def restore_agent(checkpoint: Checkpoint, config: Config, *, env: Any = None) -> tuple[Builder, Agent]:
    """The agent of a checkpoint, ready to play."""
    builder = Builder(config, env=env)
    use_device(builder.device())
    seed_everything(config["seed"])
    set_threads(config["hardware"]["torch_threads"])
    envs = builder.evaluation_environments(checkpoint.step)
    spec = envs.spec
    envs.close()
    agent = builder.agent(spec)
    for name, part in agent.parts.items():
        if name in TRAINING_PARTS and name not in checkpoint.parts:
            continue  # a bundle holds what plays
        try:
            part.load_state_dict(checkpoint.parts[name])
        except (KeyError, RuntimeError, ValueError) as error:
            raise CheckpointError(f"{checkpoint.path / 'agent.pt'}: part {name!r} does not fit: {error}") from error
    if "target" in agent.parts and "target" not in checkpoint.parts:
        agent.sync_target()  # type: ignore[attr-defined]
    return builder, agent


def use_device(device: torch.device) -> None:
    """Streams, events and graphs belong to CUDA's current device, which is the first one until somebody says so."""
    import torch

    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)


def seed_everything(seed: int) -> None:
    """Global generators, for code that asks them; ours come from named streams."""
    import torch

    seed_globals(seed)
    torch.manual_seed(seed)


def seed_globals(seed: int) -> None:
    """Those of Python and numpy; once more when all is built, as some libraries draw when they are imported."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - third-party environments may use the old generator


def set_threads(torch_threads: int | None) -> None:
    """``None`` takes what OMP_NUM_THREADS says, else the cores this process may use."""
    import torch

    if torch_threads is None and os.environ.get("OMP_NUM_THREADS", "").isdecimal():
        torch_threads = int(os.environ["OMP_NUM_THREADS"])
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(torch_threads or cores)
