"""From a run folder to the trainer that goes on where its newest checkpoint was saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from retrograd.build.run import assemble, open_environments
from retrograd.config import Config, from_saved
from retrograd.core.errors import CheckpointError, ResourceError, RetrogradError, UsageError, suggest
from retrograd.core.plain_yaml import load_plain_yaml

if TYPE_CHECKING:
    from retrograd.build.builder import Builder
    from retrograd.training.checkpoint import Checkpoint
    from retrograd.training.lock import RunLock
    from retrograd.training.trainer import Trainer

# what may change without making another run of it; a group stands for all of its keys
CHANGEABLE = (
    "training.total_env_frames",
    "training.total_episodes",
    "training.pause_at_frames",
    "training.log_every_steps",
    "checkpoint",
    "eval.light_episodes",
    "eval.full_episodes",
    "eval.num_envs",
    "eval.record_video",
    "hardware",
    "wandb",
    "mlflow",
    "tensorboard",
)
FIXED = tuple(
    f"hardware.{key}"
    for key in (
        "backend",
        "workers",
        "channels_last",
        "fused_optimizer",
        "onednn_linear",
        "compile",
        "autocast",
        "cuda_graph",
        "measure_threads",
    )
)
ASYNCHRONOUS = ("a3c", "impala")


@dataclass(frozen=True)
class Resumed:
    """A trainer that stands where the run was saved, and what should be said aloud."""

    trainer: Trainer
    notes: tuple[str, ...]


def resume_trainer(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    *,
    env: Any = None,
    command_line: Sequence[str] = (),
    quiet: bool = False,
) -> Resumed:
    """The newest checkpoint that is whole, with everything in its place; the run's logs are cut back to it."""
    from retrograd.training.lock import RunLock

    folder = find_run(Path(path))
    lock = RunLock(folder)
    try:
        return _Resume(folder, dict(overrides or {})).build(lock, env, command_line, quiet, named=Path(path))
    except BaseException:
        lock.release()
        raise


def find_run(path: Path) -> Path:
    """The run folder meant by a run, its checkpoints folder, or a checkpoint in it."""
    if not path.exists():
        raise UsageError(f"there is no run folder {path}")
    resolved = path.resolve()
    for folder in (resolved, *resolved.parents[:2]):
        if (folder / ".hydra" / "config.yaml").is_file():
            return path if folder == resolved else folder
    raise UsageError(f"{path} is not a run folder: it has no .hydra/config.yaml")


class _Resume:
    """One attempt; what it finds out on the way goes into the notes."""

    def __init__(self, folder: Path, overrides: dict[str, Any]) -> None:
        from retrograd.training.checkpoint import load_newest
        from retrograd.training.manifest import has_checkpoint

        self.folder, self.overrides = folder, overrides
        self.notes: list[str] = []
        self.checkpoint: Checkpoint | None = None
        if has_checkpoint(folder):
            last = self._last_settings()
            with_replay = overrides.get("checkpoint.replay", last.get("checkpoint.replay")) is not False
            self.checkpoint = load_newest(folder, with_replay=with_replay)
            self.saved = from_saved(self.checkpoint.config)
        else:
            last, self.saved = {}, from_saved(_read_config(folder))
        changed = {key: value for key, value in last.items() if _at(self.saved, key) != value}
        # whoever goes on is past the pause, and may name another
        self.config = change(self.saved.with_values(changed), {"training.pause_at_frames": None, **overrides})

    def _last_settings(self) -> dict[str, Any]:
        """What may change, as the last process had it: one that died before its next checkpoint left it here alone."""
        try:
            config = from_saved(_read_config(self.folder))
        except (RetrogradError, TypeError, AttributeError) as error:
            path = self.folder / ".hydra" / "config.yaml"
            self.notes.append(f"{path} is damaged, so the checkpoint's settings are used ({error})")
            return {}
        groups = {key: _at(config, key) for key in CHANGEABLE}
        settings = {key: value for key, value in groups.items() if not isinstance(value, Mapping)}
        for group, inner in groups.items():
            settings |= {f"{group}.{key}": inner[key] for key in inner} if isinstance(inner, Mapping) else {}
        return {key: value for key, value in settings.items() if key not in FIXED}

    def build(self, lock: RunLock, env: Any, command_line: Sequence[str], quiet: bool, *, named: Path) -> Resumed:
        checkpoint = self.checkpoint
        if checkpoint is not None:
            self._check_named(named.resolve(), checkpoint)
            self._check_budget(checkpoint)
        builder, envs = open_environments(self.config, env)
        try:
            start = checkpoint.step if checkpoint is not None else 0
            trainer = assemble(builder, envs, lambda: lock, place=self.folder, quiet=quiet, start_step=start)
            self._go_on(trainer, builder, command_line)
        except BaseException:
            envs.close()
            raise
        return Resumed(trainer, tuple(self.notes))

    def _go_on(self, trainer: Trainer, builder: Builder, command_line: Sequence[str]) -> None:
        from retrograd.training.resources import describe

        try:
            if self.checkpoint is not None:
                self._restore(trainer, builder, self.checkpoint)
            else:
                trainer.logger.begin_again()
                self.notes.append("there is no checkpoint yet: the run begins again at step 0")
            self._record(command_line)
        except OSError as error:
            raise ResourceError(f"the run {self.folder} cannot go on: {describe(error)}") from error

    def _check_named(self, named: Path, checkpoint: Checkpoint) -> None:
        if named.parent.name == "checkpoints" and named != checkpoint.path.resolve():
            raise UsageError(
                f"a run goes on from its newest checkpoint, {checkpoint.path.name}, not from {named.name}; to train on "
                "from an older one in a new run, use Learner.load(…).learn(…) in Python"
            )

    def _check_budget(self, checkpoint: Checkpoint) -> None:
        planned, frames = (config["training"]["total_env_frames"] for config in (self.saved, self.config))
        episodes, played = self.config["training"]["total_episodes"], int(checkpoint.parts["run"]["episodes"])
        spent = checkpoint.env_frames >= frames or (episodes is not None and played >= episodes)
        finished = bool(checkpoint.parts["trainer"]["finished"])
        if finished and spent and (self.folder / "summary.json").is_file():
            raise UsageError(
                f"the run {self.folder} is finished: {checkpoint.env_frames:,} frames, {played:,} episodes; "
                "to go on give it more, e.g. training.total_env_frames="
                f"{2 * checkpoint.env_frames}" + ("" if episodes is None else f" training.total_episodes={2 * played}")
            )
        # the last vector step may go beyond a budget that was meant from the start
        if not finished and frames < min(planned, checkpoint.env_frames):
            raise UsageError(
                f"training.total_env_frames={frames}: the run has played {checkpoint.env_frames:,} frames already"
            )

    def _restore(self, trainer: Trainer, builder: Builder, checkpoint: Checkpoint) -> None:
        from retrograd.training.plain import as_arrays
        from retrograd.training.rng import load_rng_states

        loop, parts = trainer.loop, checkpoint.parts
        for name, part in {**trainer.agent.parts, **loop.parts}.items():
            _load(part, name, checkpoint)
        if loop.player is not None:
            _load(loop.player, "player", checkpoint)
            if "envs" not in parts:
                raise CheckpointError(f"{checkpoint.path / 'agent.pt'}: has no environments, so nothing can go on")
            trainer.envs.restore(as_arrays(parts["envs"]))
        if loop.replay is not None:
            self._load_replay(trainer, checkpoint)
        for name, own in (("run", trainer.run), ("logger", trainer.logger), ("trainer", trainer)):
            _load(own, name, checkpoint)
        load_rng_states(builder.streams, checkpoint.rng)
        if bool(parts["trainer"]["finished"]) and trainer.run.spent(trainer.run.step):
            trainer.load_finished(checkpoint)
        else:
            (self.folder / "summary.json").unlink(missing_ok=True)  # it is no longer the end
        self._tell(trainer, checkpoint)

    def _load_replay(self, trainer: Trainer, checkpoint: Checkpoint) -> None:
        from retrograd.replay.saving import ReplaySaver

        if checkpoint.replay is None or not self.config["checkpoint"]["replay"]:
            self.notes.append(
                "not exact: the replay is not part of the checkpoint, so it fills anew before learning goes on"
            )
            return
        files = trainer.replay_files or ReplaySaver(self.folder / "replay")
        files.load(trainer.loop.replay, checkpoint.replay)

    def _tell(self, trainer: Trainer, checkpoint: Checkpoint) -> None:
        import torch

        kind = self.config["agent"]["kind"]
        self.notes.insert(0, f"going on at step {checkpoint.step:,} from {checkpoint.path.name}")
        if kind in ASYNCHRONOUS:
            self.notes.append(
                f"not exact: the workers of agent={kind} depend on the machine's timing; weights, optimizer, counters "
                "and logs go on, the workers' games, random numbers and unfinished rollouts begin anew"
            )
        threads = checkpoint.parts["trainer"]["torch_threads"]
        if threads != torch.get_num_threads():
            self.notes.append(
                f"not exact: torch used {threads} threads and now uses {torch.get_num_threads()}, which changes last "
                f"digits; hardware.torch_threads={threads} would not"
            )
        if self.config["hardware"]["device"] != self.saved["hardware"]["device"]:
            self.notes.append("not exact: another device computes other last digits")
        old, new = (config["training"]["total_env_frames"] for config in (self.saved, self.config))
        if old != new:
            self.notes.append(f"the budget is {new:,} frames, not {old:,}; schedules over the whole run follow it")

    def _record(self, command_line: Sequence[str]) -> None:
        """The folder tells how often the run went on, and with which changes; what ended it before is put away."""
        from retrograd.training import durable, failure
        from retrograd.training.versions import hide_home

        if self.overrides or self.config != self.saved:
            durable.write_text(self.folder / ".hydra" / "config.yaml", self.config.to_yaml())
        entry = {
            "step": self.checkpoint.step if self.checkpoint else 0,
            "checkpoint": self.checkpoint.path.name if self.checkpoint else None,
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "command_line": [hide_home(word) for word in command_line],
            "changed": self.overrides,
        }
        with open(self.folder / "resumes.jsonl", "ab") as file:
            file.write(durable.encode_json_line(entry))
        failure.set_aside(self.folder)
        for leftover in self.folder.glob(".*video-*.mp4"):  # of a save that was killed
            leftover.unlink()


def change(config: Config, overrides: Mapping[str, Any]) -> Config:
    """The run's config with some keys changed; those that would make another run of it are refused."""
    for key, value in overrides.items():
        allowed = key in CHANGEABLE or key.split(".")[0] in CHANGEABLE
        current = _at(config, key)
        if current is not _ABSENT and (not allowed or key in FIXED) and current != value:
            has = f", which has {key}={current}" if not isinstance(current, Mapping) else ""
            raise UsageError(
                f"{key}={value} conflicts with the run{has}; what may change in a run that goes on: "
                f"{', '.join(CHANGEABLE)} (without {', '.join(FIXED)}).{suggest(key, CHANGEABLE)}"
            )
    return config.with_values(overrides)  # names unknown keys and impossible values


_ABSENT = object()


def _at(config: Config, key: str) -> Any:
    place: Any = config.values
    for word in key.split("."):
        place = place.get(word, _ABSENT) if isinstance(place, Mapping) else _ABSENT
    return place


def _load(part: Any, name: str, checkpoint: Checkpoint) -> None:
    try:
        part.load_state_dict(checkpoint.parts[name])
    except (KeyError, RuntimeError, ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{checkpoint.path / 'agent.pt'}: part {name!r} does not fit: {error}") from error


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / ".hydra" / "config.yaml"
    try:
        content = load_plain_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise CheckpointError(f"{path}: cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: holds {type(content).__name__}, expected named values")
    return content
