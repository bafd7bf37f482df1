"""The same from Python: ``DQN("pong").learn(total_frames=…)``, and plain functions for scripts."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from retrograd import build, schema
from retrograd.config import Config, ConfigManager, from_saved, parse_values
from retrograd.core.errors import UsageError, suggest
from retrograd.core.plain_yaml import load_plain_yaml
from retrograd.core.types import Obs

if TYPE_CHECKING:
    from retrograd.core.protocols import Agent
    from retrograd.training.trainer import Trainer

log = logging.getLogger(__name__)


class Learner:
    """An algorithm on an environment. ``env`` is a game, a Gymnasium id, an environment or a function making one.

    Settings are the config's keys, by their full name in ``config`` or, where no other group has a key of
    that name, as keyword: ``DQN("pong", lr=1e-4, batch_size=64, seed=3)``.
    """

    groups: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self, env: Any = "pong", config: Mapping[str, Any] | None = None, *, quiet: bool = False, **settings: Any
    ) -> None:
        composed = ConfigManager(user_folder=None).compose(
            [f"{group}={option}" for group, option in self.groups.items()]
        )
        self._env = None if isinstance(env, str) else env
        changes = {**(config or {}), **{_full_key(composed, key): value for key, value in settings.items()}}
        if self._env is None:
            from retrograd.envs.names import find_environment

            changes["env.name"], changes["env.game_id"] = find_environment(env)
        else:
            changes["env.name"] = changes["env.game_id"] = _name_of(env)
            if not callable(env):  # one object is one row; a function can make as many as are wanted
                changes["training.num_envs"] = changes["eval.num_envs"] = 1
        self.config = composed.with_values(changes)
        self._quiet = quiet
        self._trainer: Trainer | None = None
        self._agent: Agent | None = None
        self._step = self._env_frames = 0
        self._default_frames: int = self.config["training"]["total_env_frames"]

    def learn(self, total_frames: int | None = None) -> Learner:
        """Train for ``total_frames`` more emulator frames (default: the config's budget); a run folder is written."""
        frames = self._default_frames if total_frames is None else total_frames
        if frames < 1:
            raise UsageError(f"total_frames={frames} must be at least 1: so many more are played")
        if self._trainer is None:
            self._trainer = self._begin(frames)
            weakref.finalize(self, self._trainer.logger.close)  # no earlier: who learns again writes on
        else:
            plan = self._trainer.run.plan
            total_steps = self._trainer.run.step + -(-frames // plan.frames_per_step)
            # the run's own config: it may have more than was asked for, such as thread counts that were measured
            config = from_saved(load_plain_yaml(self._trainer.config_yaml))
            self.config = config.with_values({"training.total_env_frames": total_steps * plan.frames_per_step})
            self._trainer.extend(total_steps, self.config.to_yaml())
        self._trainer.train()
        self._step, self._env_frames = self._trainer.run.step, self._trainer.run.env_frames
        return self

    def _begin(self, frames: int) -> Trainer:
        """A new run; one of a loaded agent goes on counting, so that its schedules go on, too."""
        changes: dict[str, Any] = {"training.total_env_frames": self._env_frames + frames}
        if self._env_frames:
            changes["run_name"] = None  # that name has a folder already
        self.config = self.config.with_values(changes)
        trainer = build.build_trainer(self.config, env=self._env, quiet=self._quiet)
        if self._agent is not None:
            for name, part in trainer.agent.parts.items():
                part.load_state_dict(self._agent.parts[name].state_dict())
        trainer.begin_at(self._step)
        if self._step:  # or a kill before the first checkpoint that is due would lose all that was learned before
            trainer.save_checkpoint()
        self._agent = trainer.agent
        return trainer

    @property
    def folder(self) -> Path | None:
        """The run folder, once learning has begun."""
        return self._trainer.folder if self._trainer else None

    @property
    def agent(self) -> Agent:
        """The agent itself; untrained before ``learn``."""
        if self._agent is None:
            builder = build.Builder(self.config, env=self._env)
            envs = builder.evaluation_environments(0)
            envs.close()
            self._agent = builder.agent(envs.spec)
        return self._agent

    def predict(self, obs: Obs, state: Any = None, *, deterministic: bool = True) -> tuple[Any, Any]:
        """Action and memory for one observation, or for a batch of them."""
        agent = self.agent
        single = not isinstance(obs, dict) and np.ndim(obs) == len(self._observation_shape)
        rows = np.asarray(obs)[None] if single else obs
        if "normalizers" in agent.parts:
            rows = agent.parts["normalizers"].normalize(rows)  # type: ignore[attr-defined]
        if deterministic and hasattr(agent, "greedy"):
            return (agent.greedy(rows)[0] if single else agent.greedy(rows)), state
        if deterministic and hasattr(agent, "decide_greedily"):
            decision = agent.decide_greedily(rows, state)
        else:
            decision = agent.act(rows, state, step=self._step, explore=not deterministic)
        return (decision.action[0] if single else decision.action), decision.state

    def evaluate(self, episodes: int | None = None) -> dict[str, Any]:
        """Play full, unclipped games; the keys are those that ``retrograd evaluate`` prints."""
        judge = build.Judge(build.Builder(self.config, env=self._env), self.agent)
        count = self.config["eval"]["full_episodes"] if episodes is None else episodes
        return judge.evaluate(episodes=count, step=self._step)

    def save(self, path: str | Path) -> Path:
        """Write a checkpoint into the folder ``path``; every command and ``load`` take it."""
        from retrograd.training.checkpoint import CheckpointStore

        return CheckpointStore(Path(path)).save(
            step=self._step,
            env_frames=self._env_frames,
            parts=self.agent.parts,
            rng={},
            metrics={"step": self._step},
            config_yaml=self.config.to_yaml(),
        )

    @classmethod
    def load(cls, path: str | Path, *, env: Any = None) -> Learner:
        """The agent of a run folder, a checkpoint folder or what ``save`` wrote."""
        checkpoint, config = read_checkpoint(path)
        expected = cls.groups.get("agent")
        if (
            expected is not None
            and ConfigManager(None).compose([f"agent={expected}"])["agent"]["kind"] != config["agent"]["kind"]
        ):
            raise UsageError(
                f"{path} holds an agent of kind {config['agent']['kind']!r}; {cls.__name__}.load cannot read it"
            )
        learner = cls.__new__(cls)
        learner.config, learner._env, learner._quiet = config, env, False
        learner._trainer, learner._step, learner._env_frames = None, checkpoint.step, checkpoint.env_frames
        learner._default_frames = config["training"]["total_env_frames"]
        _, learner._agent = build.restore_agent(checkpoint, config, env=env)
        return learner

    @cached_property
    def _observation_shape(self) -> tuple[int, ...]:
        """Of an environment of the user's own one is made to be asked: once, and closed again."""
        if self._env is None:
            spec = build.planned_spec(self.config)
        else:
            envs = build.Builder(self.config, env=self._env).evaluation_environments(0)
            envs.close()
            spec = envs.spec
        return () if isinstance(spec.obs, dict) else spec.obs.shape


class DQN(Learner):
    """Nature DQN (track A): Mnih et al. 2015."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "dqn"}


class DoubleDQN(Learner):
    """DQN that chooses the next action with one network and values it with the other: van Hasselt et al. 2016."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "double"}


class C51(Learner):
    """Categorical value distributions: Bellemare et al. 2017."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "c51"}


class QRDQN(Learner):
    """Quantile regression: Dabney et al. 2018."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "qr_dqn"}


class IQN(Learner):
    """Implicit quantile networks: Dabney et al. 2018."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "iqn"}


class MunchausenDQN(Learner):
    """DQN that adds its own log-policy to the reward: Vieillard et al. 2020."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "munchausen"}


class Rainbow(Learner):
    """Double, dueling, priorities, three steps, C51 and noisy layers together: Hessel et al. 2018."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "rainbow"}


class PPO(Learner):
    """Proximal policy optimization: Schulman et al. 2017."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "ppo"}


class A2C(Learner):
    """Synchronous advantage actor-critic: Mnih et al. 2016."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "a2c"}


class A3C(Learner):
    """Asynchronous advantage actor-critic, each worker a process: Mnih et al. 2016."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "a3c"}


class IMPALA(Learner):
    """Actors in processes of their own and a learner that corrects for their lag: Espeholt et al. 2018."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "impala"}


class RecurrentPPO(Learner):
    """PPO whose policy remembers, by an LSTM or a GRU; public as ``retrograd.contrib.RecurrentPPO``."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "recurrent_ppo"}


class PQN(Learner):
    """Many games side by side, λ-returns, no replay: Gallici et al. 2025."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "pqn"}


class RandomPlayer(Learner):
    """Uniformly random actions."""

    groups: ClassVar[Mapping[str, str]] = {"agent": "random"}


def train(config: Config | Sequence[str] = ()) -> dict[str, Any]:
    """Train as ``retrograd train`` does, from a config or a list of overrides; returns the summary."""
    composed = config if isinstance(config, Config) else ConfigManager().compose(config)
    trainer = build.build_trainer(composed)
    try:
        return trainer.train()
    finally:
        trainer.close()


def resume(path: str | Path, overrides: Mapping[str, Any] | None = None, *, env: Any = None) -> dict[str, Any]:
    """Go on with a stopped or killed run as ``retrograd resume`` does; returns the summary.

    ``overrides`` may give it more budget, such as ``{"training.total_env_frames": 100_000_000}``. ``env`` is the
    environment object or function, if the run began with one.
    """
    resumed = build.resume_trainer(path, overrides, env=env)
    for note in resumed.notes:
        log.warning("%s", note)
    try:
        return resumed.trainer.train()
    finally:
        resumed.trainer.close()


def evaluate_checkpoint(path: str | Path, overrides: Mapping[str, Any] | Sequence[str] | None = None) -> dict[str, Any]:
    """Play the agent of a run or checkpoint; overrides may change how it is judged, not what it is.

    They are a mapping, or words as ``retrograd evaluate`` and ``train`` take them.
    """
    changes = overrides if isinstance(overrides, Mapping) else parse_values(overrides or ())
    checkpoint, config = read_checkpoint(path, changes)
    builder, agent = build.restore_agent(checkpoint, config)
    judge = build.Judge(builder, agent)
    return judge.evaluate(episodes=config["eval"]["full_episodes"], step=checkpoint.step)


def read_checkpoint(path: str | Path, overrides: Mapping[str, Any] | None = None) -> tuple[Any, Config]:
    """A checkpoint and its config; overrides that would make it another agent are refused.

    ``path`` is a run, a checkpoint, an exported agent, or the name of one that comes with the package.
    """
    from retrograd.training import checkpoint as checkpoints
    from retrograd.training.shipped import find_agent

    loaded = checkpoints.load(find_agent(path))
    config = from_saved(loaded.config)
    allowed = ("eval", "hardware", "env_protocol", "seed", "agent.eval_policy")
    for key, value in (overrides or {}).items():
        if key not in allowed and key.split(".")[0] not in allowed:
            raise UsageError(
                f"{key}={value} conflicts with the checkpoint, which knows its own config; "
                f"only {', '.join(allowed)} may be changed here"
            )
    if unused := schema.unused(config["agent"]["kind"], overrides or {}):
        raise UsageError("\n".join(unused))
    return loaded, config.with_values(overrides or {})


def _full_key(config: Config, key: str) -> str:
    """``lr`` → ``preset.lr``, if no other group has a key of that name."""
    if key in config.values:
        return key
    found = [
        f"{group}.{key}" for group, values in config.values.items() if isinstance(values, Mapping) and key in values
    ]
    if len(found) == 1:
        return found[0]
    known = [name for values in config.values.values() if isinstance(values, Mapping) for name in values]
    if found:
        raise UsageError(f"{key} is in several groups; write config={{'{found[0]}': …}} or {' or '.join(found[1:])}")
    raise UsageError(f"unknown setting {key!r}.{suggest(key, known)}")


def _name_of(env: Any) -> str:
    spec = getattr(env, "spec", None)
    return spec.id if spec is not None else getattr(env, "__name__", type(env).__name__)
