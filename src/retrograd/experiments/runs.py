"""What the logs of run folders say, and which runs may be compared.

Only the logs and the saved config of a run are read, so a run may still be going. Runs of different games or
protocols are kept apart (panels): their returns do not measure the same thing. Runs of one config that differ in the
seed alone belong together (groups).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from retrograd.core.errors import UsageError, suggest
from retrograd.core.types import Array
from retrograd.experiments import reference
from retrograd.tracking.csv import read_csv

EVALUATION_RANK = {"light": 0, "final": 1, "full": 2}  # which one counts where several share a frame
SMOOTHING_EPISODES = 100
# top-level keys that say where and under which name a run was made, not what it was
BESIDE_THE_POINT = frozenset({"seed", "run_name", "output_dir", "hardware", "wandb", "mlflow", "tensorboard"})
# keys of env_protocol that change what a score means; the others belong to the learner
FLICKER = "flicker_probability"
SCORING_KEYS = (
    "repeat_action_probability",
    "frameskip",
    "action_repeat",
    "full_action_space",
    "noop_max",
    "terminal_on_life_loss_eval",
    "eval_max_episode_frames",
)


@dataclass(frozen=True)
class RunLog:
    """What a plot or a table needs of one run folder."""

    folder: Path
    config: dict[str, Any]
    eval_frames: Array  # [E]
    eval_mean: Array  # [E]
    eval_std: Array  # [E]
    train_frames: Array  # [K] one entry an episode
    train_return: Array  # [K]

    @cached_property
    def game(self) -> str:
        """Atari's without its version, whose meaning is in the protocol; any other id as it is.

        CartPole-v0 ends earlier than v1, and MinAtar/Breakout is not Breakout.
        """
        env = self._settings_of("env")
        name = str(env.get("game_id") or env.get("name") or self.folder.name)
        if name.startswith("ALE/") or reference.is_known(name):
            return name.removeprefix("ALE/").split("-v")[0]
        return name

    @cached_property
    def algorithm(self) -> str:
        return str(self._settings_of("agent").get("name") or self.folder.name)

    @cached_property
    def seed(self) -> int | None:
        seed = self.config.get("seed")
        return seed if isinstance(seed, int) else None

    @cached_property
    def family(self) -> str | None:
        """Family of published protocols; None off Atari and for a stickiness or flicker nobody published."""
        probability = self._settings_of("env_protocol").get("repeat_action_probability")
        if probability is None or self.flicker or not reference.is_known(self.game):
            return None
        return reference.protocol_family(float(probability))

    @cached_property
    def protocol_label(self) -> str:
        """Off Atari there is only one way to play, but for what is hidden."""
        blank = f"{self.flicker:.0%} of frames blank" if self.flicker else ""
        if not reference.is_known(self.game):
            return blank
        if self.family is not None:
            return reference.FAMILIES[self.family]
        probability = self._settings_of("env_protocol").get("repeat_action_probability")
        if probability is None:
            return "protocol unknown"
        sticky = reference.protocol_family(float(probability))
        label = f"repeat probability {probability}" if sticky is None else reference.FAMILIES[sticky]
        return f"{label}, {blank}" if blank else label

    @cached_property
    def scoring(self) -> dict[str, Any]:
        """What of the protocol changes the meaning of a score; nothing off Atari."""
        if not reference.is_known(self.game):
            return {}
        protocol = self._settings_of("env_protocol")
        return {"flicker": self.flicker, **{key: protocol[key] for key in SCORING_KEYS if key in protocol}}

    @property
    def flicker(self) -> float:
        return float(self._settings_of("env_protocol").get(FLICKER) or 0.0)

    @property
    def last_frame(self) -> int:
        return int(max([0, *self.eval_frames[-1:], *self.train_frames[-1:]]))

    @property
    def score(self) -> float:
        """The last evaluation, or the last training episodes of a run without one."""
        return float(self.eval_mean[-1]) if len(self.eval_mean) else self.training_score

    @property
    def training_score(self) -> float:
        """Mean of the last training episodes; NaN for a run without one."""
        return float(np.mean(self.train_return[-SMOOTHING_EPISODES:])) if len(self.train_return) else float("nan")

    def curve(self, smooth_episodes: int = SMOOTHING_EPISODES) -> tuple[Array, Array]:
        """Frames and returns: the evaluations, or the smoothed training return of a run without them."""
        return (self.eval_frames, self.eval_mean) if len(self.eval_mean) else self.training_curve(smooth_episodes)

    def training_curve(self, smooth_episodes: int = SMOOTHING_EPISODES) -> tuple[Array, Array]:
        """Frames and the mean return of the last ``window`` games."""
        if not len(self.train_return):
            return self.train_frames, self.train_return
        window = self.window(smooth_episodes)
        smooth = np.convolve(self.train_return, np.full(window, 1 / window), mode="valid")
        return self.train_frames[window - 1 :], smooth

    def window(self, smooth_episodes: int = SMOOTHING_EPISODES) -> int:
        """Games averaged for a point of the training curve: a run of few games gets a shorter window."""
        if smooth_episodes < 1:
            raise UsageError(f"smooth_episodes is {smooth_episodes}: must be at least 1")
        return max(1, min(smooth_episodes, len(self.train_return) // 4))

    def _settings_of(self, group: str) -> Mapping[str, Any]:
        values = self.config.get(group)
        return values if isinstance(values, Mapping) else {}


@dataclass(frozen=True)
class Group:
    """Runs of one config; they differ in the seed."""

    label: str
    runs: tuple[RunLog, ...]

    @property
    def last_frame(self) -> int:
        return max(run.last_frame for run in self.runs)


@dataclass(frozen=True)
class Panel:
    """Groups whose returns measure the same thing."""

    protocol: str  # in words; empty off Atari
    groups: tuple[Group, ...]

    @property
    def title(self) -> str:
        return " · ".join(filter(None, (self.game, self.protocol)))

    @property
    def runs(self) -> list[RunLog]:
        return [run for group in self.groups for run in group.runs]

    @property
    def game(self) -> str:
        return self.groups[0].runs[0].game

    @property
    def family(self) -> str | None:
        return self.groups[0].runs[0].family


Runs = Iterable[str | Path | RunLog | Panel] | Mapping[str, Iterable[str | Path | RunLog]]


def read_run(folder: str | Path) -> RunLog:
    """Read the logs of a run folder."""
    folder = Path(folder)
    if not folder.is_dir():
        siblings = (path.name for path in folder.parent.glob("*/")) if folder.parent.is_dir() else ()
        raise UsageError(f"There is no run folder {str(folder)!r}.{suggest(folder.name, siblings)}")
    train = _read_columns(folder / "train_log.csv", ("env_frames", "episode_return"))
    evaluations: dict[float, tuple[int, float, float]] = {}
    names = ("env_frames", "eval_mean_return", "eval_std_return", "eval_type")
    for frames, mean, std, kind in _read_columns(folder / "eval_log.csv", names):
        rank = EVALUATION_RANK.get(kind, -1)
        if rank >= evaluations.get(frames, (-1, 0.0, 0.0))[0]:
            evaluations[frames] = (rank, mean, std)
    if not train and not evaluations:
        raise UsageError(
            f"{str(folder)!r} has neither evaluations nor episodes: no eval_log.csv or train_log.csv rows."
        )
    ordered = sorted(evaluations.items())
    return RunLog(
        folder=folder,
        config=_read_config(folder / ".hydra" / "config.yaml"),
        eval_frames=np.array([frames for frames, _ in ordered], dtype=np.float64),
        eval_mean=np.array([values[1] for _, values in ordered], dtype=np.float64),
        eval_std=np.array([values[2] for _, values in ordered], dtype=np.float64),
        train_frames=np.array([row[0] for row in train], dtype=np.float64),
        train_return=np.array([row[1] for row in train], dtype=np.float64),
    )


def find_runs(folders: Iterable[str | Path]) -> list[Path]:
    """The run folders among the folders given or up to two levels below them, each once, in the order given."""
    found: dict[Path, Path] = {}
    for folder in map(Path, folders):
        below: set[Path] = set()
        if not _is_run(folder):
            below = {path.parent for pattern in ("*/.hydra", "*/*/.hydra") for path in folder.glob(pattern)}
        for run in sorted(below) or [folder]:
            found.setdefault(run.resolve(), run)
    return list(found.values())


def panels_of(runs: Runs) -> list[Panel]:
    """Runs sorted by game and protocol, then by config; a mapping gives the groups and their labels itself.

    Panels pass as they are.
    """
    labeled: dict[str, list[tuple[str | None, RunLog]]] = {}
    pairs: Iterable[tuple[str | None, str | Path | RunLog]]
    if isinstance(runs, Mapping):
        pairs = ((label, run) for label, members in runs.items() for run in members)
    else:
        given = list(runs)
        made = [panel for panel in given if isinstance(panel, Panel)]
        if made:
            return made
        pairs = ((None, run) for run in given if not isinstance(run, Panel))
    for label, run in pairs:
        log = run if isinstance(run, RunLog) else read_run(run)
        key = json.dumps([log.game, log.protocol_label, log.scoring], sort_keys=True, default=str)
        labeled.setdefault(key, []).append((label, log))
    if not labeled:
        raise UsageError("There is nothing to plot: give at least one run folder.")
    kinds = list(labeled.values())
    return [_panel(kind, [other[0][1] for other in kinds]) for kind in kinds]


def _panel(members: Sequence[tuple[str | None, RunLog]], firsts: Sequence[RunLog]) -> Panel:
    first = members[0][1]
    rivals = [run.scoring for run in firsts if (run.game, run.family) == (first.game, first.family)]
    differences = name_differences(first.scoring, rivals)  # of one family, yet not of one protocol: say what differs
    protocol = " · ".join(filter(None, (first.protocol_label, differences)))
    if members[0][0] is None:
        return Panel(protocol, tuple(group_seeds([run for _, run in members])))
    named: dict[str, list[RunLog]] = {}
    for label, run in members:
        named.setdefault(str(label), []).append(run)
    return Panel(protocol, tuple(Group(label, tuple(runs)) for label, runs in named.items()))


def group_seeds(runs: Sequence[RunLog]) -> list[Group]:
    """Runs of one config together; configs of one algorithm are told apart by the keys in which they differ."""
    by_config: dict[str, list[RunLog]] = {}
    for run in runs:
        identity = _settings(run) or {"folder": str(run.folder)}
        by_config.setdefault(json.dumps(identity, sort_keys=True, default=str), []).append(run)
    members = list(by_config.values())
    groups = []
    for logs in members:
        algorithm = logs[0].algorithm
        rivals = [_settings(other[0]) for other in members if other[0].algorithm == algorithm]
        differences = name_differences(_settings(logs[0]), rivals)
        groups.append(Group(" · ".join(filter(None, (algorithm, differences))), tuple(logs)))
    labels = [group.label for group in groups]
    if len(set(labels)) == len(labels):
        return groups
    return [
        Group(f"{group.label} · {group.runs[0].folder.name}", group.runs) if labels.count(group.label) > 1 else group
        for group in groups
    ]


def config_value(run: RunLog, key: str) -> Any:
    """The value of a dotted key in a run's config."""
    value: Any = run.config
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            known = value if isinstance(value, dict) else ()
            raise UsageError(f"The config of {str(run.folder)!r} has no key {key!r}.{suggest(part, known)}")
        value = value[part]
    return value if isinstance(value, int | float | str) else str(value)


def count_seeds(number: int) -> str:
    return "1 seed" if number == 1 else f"{number} seeds"


def _is_run(folder: Path) -> bool:
    return any((folder / name).exists() for name in (".hydra", "train_log.csv", "eval_log.csv"))


def _settings(run: RunLog) -> dict[str, Any]:
    """Dotted keys and values of what the run was."""
    return _flatten({key: value for key, value in run.config.items() if key not in BESIDE_THE_POINT})


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def name_differences(own: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]], limit: int = 3) -> str:
    """``lr=0.001 batch_size=64``: the keys in which the rivals differ, with one's own values; empty without any."""
    keys = sorted({key for rival in rivals for key in rival} | set(own))
    differing = [key for key in keys if len({str(rival.get(key)) for rival in rivals}) > 1]
    words = [f"{key.rsplit('.', 1)[-1]}={_short(own.get(key))}" for key in differing[:limit]]
    return " ".join(words) + (f" +{len(differing) - limit} more" if len(differing) > limit else "")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _read_columns(path: Path, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Rows of the named columns; numbers but for names that end in _type."""
    if not path.is_file():
        return []
    try:
        rows = read_csv(path)
    except (OSError, csv.Error) as error:
        raise UsageError(f"{str(path)!r} cannot be read: {error}") from error
    absent = [name for name in names if rows and name not in rows[0]]
    if absent:
        raise UsageError(f"{str(path)!r} has no column {absent[0]!r}.{suggest(absent[0], rows[0])}")
    numbers = [name for name in names if not name.endswith("_type")]
    whole = [row for row in rows if all(isinstance(row[name], int | float) for name in numbers)]
    return [tuple(row[name] for name in names) for row in whole]


def _read_config(path: Path) -> dict[str, Any]:
    """The resolved config of a run; empty where it was not kept."""
    if not path.is_file():
        return {}
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{str(path)!r} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(config, dict | None):
        raise UsageError(f"{str(path)!r} must hold keys and values, not {type(config).__name__}")
    return config or {}
