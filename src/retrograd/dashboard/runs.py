"""What is known about a run without reading its long files: enough for a list of hundreds."""

from __future__ import annotations

import json
import math
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from retrograd.dashboard.folder import OutputFolder, RunFolder
from retrograd.dashboard.series import comparable_protocols
from retrograd.dashboard.settings import flatten
from retrograd.dashboard.tables import GrowingTable, header_of, last_row, read_columns

STALE_SECONDS = 180.0  # a run that has written nothing for so long is not going on
TABLES = ("train", "update", "eval")
LARGEST_DOCUMENT_BYTES = 8_000_000  # no config or catalog is longer


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One line of the overview."""

    name: str
    game: str
    agent: str
    protocol: str
    track: str
    seed: int | None
    state: str  # running, done, failed, stopped, broken
    frames: int
    total_frames: int | None
    steps_per_second: float | None
    last_score: float | None
    best_score: float | None
    human_normalized: float | None  # of the last score
    written_at: float  # seconds since the epoch: when its files last changed
    comparable: tuple[str, ...] = ()  # protocols of published curves that were made the same way
    problem: str = ""  # what is missing or cannot be read

    @property
    def progress(self) -> float | None:
        return min(1.0, self.frames / self.total_frames) if self.total_frames else None

    @property
    def evaluated(self) -> bool:
        """Whether the last score is that of an evaluation; before the first one it is a training return."""
        return self.best_score is not None

    @property
    def family(self) -> tuple[str, str, str]:
        """What tells runs apart before anything else does."""
        return (self.agent, self.game, self.protocol)


def measured_alike(infos: Iterable[RunInfo]) -> tuple[list[RunInfo], list[RunInfo]]:
    """Runs whose last scores may be averaged, and those to leave out: a training return is no evaluation."""
    scored = [info for info in infos if info.last_score is not None]
    evaluated = [info for info in scored if info.evaluated]
    return (evaluated, [info for info in scored if not info.evaluated]) if evaluated else (scored, [])


@dataclass
class RunReader:
    """Reads runs, and remembers what has not changed since."""

    folder: OutputFolder
    _tables: dict[tuple[str, str], GrowingTable] = field(default_factory=dict)
    _texts: dict[tuple[Path, Any], tuple[tuple[int, int], Any]] = field(default_factory=dict)
    _infos: dict[str, tuple[Any, RunInfo]] = field(default_factory=dict)
    _settings: dict[str, tuple[dict[str, Any], dict[str, str]]] = field(default_factory=dict)
    _listing: threading.Lock = field(default_factory=threading.Lock)

    def infos(self, runs: Iterable[RunFolder] | None = None) -> list[RunInfo]:
        """All runs, the most recently written first."""
        with self._listing:  # who comes second has nothing left to read
            found = [self.info(run) for run in (self.folder.runs().values() if runs is None else runs)]
        return sorted(found, key=lambda info: info.written_at, reverse=True)

    def info(self, run: RunFolder) -> RunInfo:
        stamps = [_stamp(f"{run.path}/{name}") for name in _WATCHED]  # where a file leads is asked when it is read
        known = self._infos.get(run.name)
        if known is None or known[0] != stamps:
            info = self._read_info(run, max(stamp[0] for stamp in stamps[:-1]) / 1e9)
        elif known[1].state == "running":  # it may have ended without a word
            info = replace(known[1], state=self._going_on(run, known[1].written_at))
        else:
            return known[1]
        self._infos[run.name] = (stamps, info)
        return info

    def table(self, run: RunFolder, kind: str) -> Any:
        """The train, update or eval log as a data frame; empty where it is missing."""
        path = run.file(f"{kind}_log.csv")
        if path is None:
            return pd.DataFrame()
        return self._tables.setdefault((run.name, kind), GrowingTable(path)).read()

    def columns(self, run: RunFolder, kind: str) -> list[str]:
        """What the train, update or eval log has, without reading its rows."""
        return header_of(run.file(f"{kind}_log.csv"))

    def config(self, run: RunFolder) -> dict[str, Any]:
        """The resolved config; {} where it is missing or no mapping."""
        value = self._document(run.file(".hydra/config.yaml"), _load_yaml)
        return value if isinstance(value, dict) else {}

    def settings(self, run: RunFolder) -> dict[str, str]:
        """The config as flat text: ``agent.gamma`` → ``0.99``."""
        config = self.config(run)
        known = self._settings.get(run.name)
        if known is None or known[0] is not config:  # the same object as long as the file is the same
            self._settings[run.name] = known = (config, dict(flatten(config)))
        return known[1]

    def versions(self, run: RunFolder) -> dict[str, Any]:
        value = self._document(run.file("versions.json"), json.loads)
        return value if isinstance(value, dict) else {}

    def summary(self, run: RunFolder) -> dict[str, Any]:
        value = self._document(run.file("summary.json"), json.loads)
        return value if isinstance(value, dict) else {}

    def checkpoints(self, run: RunFolder) -> list[dict[str, Any]]:
        """``{step, path, eval_score, timestamp}`` as the catalog lists them, and ``video`` where there is one."""
        listed = self._document(run.file("checkpoints/catalog.json"), json.loads)
        found = []
        for entry in listed if isinstance(listed, list) else []:
            if not isinstance(entry, dict) or not isinstance(entry.get("step"), int):
                continue
            name = Path(str(entry.get("path", ""))).name  # never a path out of the folder
            video = run.file(f"checkpoints/{name}/video.mp4")
            found.append({**entry, "eval_score": _number(entry.get("eval_score")), "video": video})
        return sorted(found, key=lambda entry: entry["step"])

    def _document(self, path: Path | None, parse: Callable[[str], Any]) -> Any:
        if path is None:
            return None
        stamp = _stamp(path)
        known = self._texts.get((path, parse))
        if known is None or known[0] != stamp:
            try:
                if stamp[1] > LARGEST_DOCUMENT_BYTES:
                    raise ValueError("too long")
                value = parse(path.read_text(encoding="utf-8", errors="replace"))
            except (OSError, ValueError, RecursionError, yaml.YAMLError):
                value = None
            self._texts[path, parse] = known = (stamp, value)
        return known[1]

    def _read_info(self, run: RunFolder, written_at: float) -> RunInfo:
        config = self.config(run)
        update, episode = last_row(run.file("update_log.csv")), last_row(run.file("train_log.csv"))
        means, normalized = read_columns(run.file("eval_log.csv"), ("eval_mean_return", "eval_human_normalized"))
        missing = [name for name in ("config", "training log") if not {"config": config, "training log": update}[name]]
        return RunInfo(
            name=run.name,
            game=str(_at(config, "env", "name") or "?"),
            agent=str(_at(config, "agent", "name") or "?"),
            protocol=str(_at(config, "env_protocol", "name") or "?"),
            track=str(config.get("track", "?")),
            seed=config.get("seed") if isinstance(config.get("seed"), int) else None,
            state=self._state(run, config, written_at),
            frames=int(_number(update.get("env_frames")) or _number(episode.get("env_frames")) or 0),
            total_frames=int(_number(_at(config, "training", "total_env_frames")) or 0) or None,
            steps_per_second=_number(update.get("steps_per_second")),
            last_score=float(means[-1]) if len(means) else _number(update.get("return_mean_100")),
            best_score=float(means.max()) if len(means) else None,
            human_normalized=float(normalized[-1]) if len(normalized) else None,
            written_at=written_at,
            comparable=comparable_protocols(
                _number(_at(config, "env_protocol", "repeat_action_probability")),
                _number(_at(config, "env_protocol", "flicker_probability")) or 0.0,
            ),
            problem=f"no {' and no '.join(missing)} yet" if missing else "",
        )

    def _state(self, run: RunFolder, config: Mapping[str, Any], written_at: float) -> str:
        """What was said last counts: a run that failed or ended may have been resumed since."""
        failed_at, done_at, taken_at = (_stamp(run.file(name))[0] for name in ("failure.json", "summary.json", ".lock"))
        if not isinstance(self._document(run.file(".lock"), json.loads), dict):
            taken_at = 0  # the lock is empty once it was given back
        if failed_at and failed_at >= max(done_at, taken_at):
            return "failed"
        if done_at and done_at >= taken_at:
            return "done"
        if not config:
            return "broken"
        return self._going_on(run, written_at)

    def _going_on(self, run: RunFolder, written_at: float) -> str:
        """Running or stopped: of a run that has not said how it ended."""
        holder = self._document(run.file(".lock"), json.loads)
        if isinstance(holder, dict) and holder.get("host") == platform.node():
            return "running" if _alive(holder.get("pid")) else "stopped"
        return "running" if time.time() - written_at < STALE_SECONDS else "stopped"


_WATCHED = (
    ".hydra/config.yaml",
    "train_log.csv",
    "update_log.csv",
    "eval_log.csv",
    "summary.json",
    "failure.json",
    ".lock",  # the last: who holds a run is no news of the run
)
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where libyaml is


def _load_yaml(text: str) -> Any:
    if "*" in text and any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=_YAML)):
        raise ValueError("aliases unfold without bound, and no run writes them")
    loader = _YAML(text)  # one of the two safe ones
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _alive(pid: Any) -> bool:
    """Whether a process of that number is there; asking does not disturb it."""
    if not isinstance(pid, int) or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True


def _stamp(path: Path | str | None) -> tuple[int, int]:
    if path is None:
        return (0, 0)
    try:
        stat = os.stat(path)
    except OSError:
        return (0, 0)
    return (stat.st_mtime_ns, stat.st_size)


def _at(config: Mapping[str, Any], group: str, key: str) -> Any:
    values = config.get(group)
    return values.get(key) if isinstance(values, Mapping) else None


def _number(text: Any) -> float | None:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None
