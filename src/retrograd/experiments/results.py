"""What came out of a sweep's runs: one row each, as CSV and Parquet. Only run folders are read."""

from __future__ import annotations

import csv
import io
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from retrograd.core.types import Array
from retrograd.experiments.definition import RunSpec
from retrograd.experiments.efficiency import area_under_curve
from retrograd.experiments.ledger import Entry
from retrograd.tracking.csv import read_csv
from retrograd.training import durable

LAST_EPISODES = 100
TAIL_BYTES = 8192
FEW_EVALUATIONS = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scores:
    """The figures a sweep is judged by; None where the run did not get so far."""

    final: float | None
    best: float | None
    auc: float | None

    def value(self, metric: str) -> float | None:
        figure: float | None = getattr(self, metric)
        return figure


@dataclass(frozen=True)
class Curve:
    """Returns over frames: of evaluations, or of training episodes where there are too few."""

    frames: Array  # [K], rising
    returns: Array  # [K]

    def mean(self) -> float | None:
        """The area under the curve over its width; None of an empty one."""
        return area_under_curve(self.frames, self.returns) if len(self.frames) else None

    def at(self, frames: float, window_frames: float) -> float | None:
        """The mean return of the window that ends at ``frames``."""
        inside = (self.frames > frames - window_frames) & (self.frames <= frames)
        return float(np.mean(self.returns[inside])) if inside.any() else None


def read_evaluations(folder: Path) -> list[dict[str, Any]]:
    path = folder / "eval_log.csv"
    return read_csv(path) if path.exists() else []


def read_curve(folder: Path) -> Curve:
    """The run so far; it may still be going."""
    points = {row["env_frames"]: row["eval_mean_return"] for row in read_evaluations(folder)}  # the last of equals
    if len(points) < FEW_EVALUATIONS and (folder / "train_log.csv").exists():
        return read_games(folder)
    return _curve(points.items())


def read_games(folder: Path) -> Curve:
    """The returns of all training episodes."""
    path = folder / "train_log.csv"
    return _curve((row["env_frames"], row["episode_return"]) for row in (read_csv(path) if path.exists() else ()))


def _curve(points: Iterable[tuple[float, float]]) -> Curve:
    ordered = sorted(points, key=lambda point: point[0])
    return Curve(
        np.array([frames for frames, _ in ordered], np.float64), np.array([value for _, value in ordered], np.float64)
    )


def read_scores(folder: Path) -> Scores:
    """Final: the final evaluation. Best: the best evaluation. AUC: the mean of the curve."""
    evaluations = [row["eval_mean_return"] for row in read_evaluations(folder)]
    final = (_read_json(folder / "summary.json").get("final") or {}).get("mean_return")
    return Scores(final, max(evaluations, default=None), read_curve(folder).mean())


def read_progress(folder: Path) -> dict[str, Any]:
    """The newest row of the run's logs, without reading all of them: step, frames and mean return."""
    rows = [row for name in ("update_log.csv", "train_log.csv") if (row := _last_row(folder / name))]
    if not rows:
        return {}
    newest = max(rows, key=lambda row: row["step"])
    returns = [row[key] for row in rows for key in ("return_mean_100", "episode_return") if row.get(key) is not None]
    return {"step": newest["step"], "env_frames": newest["env_frames"], "return": next(iter(returns), None)}


def make_row(spec: RunSpec, entry: Entry, folder: Path) -> dict[str, Any]:
    """The run's line of the table, from what its folder holds."""
    summary, versions = _read_json(folder / "summary.json"), _read_json(folder / "versions.json")
    progress = read_progress(folder) if folder.is_dir() else {}
    scores = read_scores(folder) if folder.is_dir() else Scores(None, None, None)
    step, seconds = summary.get("step", progress.get("step")), summary.get("wall_seconds")
    return {
        "run": spec.name,
        "trial": spec.trial,
        **spec.settings,
        "seed": spec.seed,
        "state": str(entry.state),
        "step": step,
        "env_frames": summary.get("env_frames", progress.get("env_frames")),
        "final_score": scores.final,
        "best_score": scores.best,
        "auc": scores.auc,
        "wall_seconds": seconds,
        "steps_per_second": step / seconds if step and seconds else None,
        "starts": entry.starts,
        "exit_code": entry.exit_code,
        "reason": entry.reason,
        "commit": (versions.get("git") or {}).get("commit"),
        "overrides": " ".join(spec.overrides),
    }


def save_table(rows: Sequence[Mapping[str, Any]], folder: Path) -> list[Path]:
    """``results.csv`` and, where pyarrow is installed, ``results.parquet``."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows([{key: "" if value is None else value for key, value in row.items()} for row in rows])
    path = folder / "results.csv"
    durable.write_text(path, text.getvalue())
    parquet = _parquet(rows, columns)
    if parquet is None:
        return [path]
    durable.write_bytes(folder / "results.parquet", parquet)
    return [path, folder / "results.parquet"]


def _parquet(rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> bytes | None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        log.warning('results.parquet is not written: pip install "retrograd[sweep]"')
        return None
    table = pyarrow.table({name: [row.get(name) for row in rows] for name in columns})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _last_row(path: Path) -> dict[str, Any] | None:
    """The last whole line of a log as numbers by column."""
    try:
        with path.open("rb") as file:
            header = file.readline()
            begin = file.tell()
            size = file.seek(0, io.SEEK_END)
            file.seek(max(begin, size - TAIL_BYTES))
            tail = file.read()
    except OSError:
        return None
    whole = tail[: tail.rfind(b"\n") + 1].splitlines()
    if not whole:
        return None
    names, cells = header.decode().strip().split(","), whole[-1].decode(errors="replace").split(",")
    if len(names) != len(cells):
        return None
    row = {}
    for name, cell in zip(names, cells, strict=True):
        try:
            row[name] = float(cell) if cell else None
        except ValueError:
            row[name] = None
    return row if row.get("step") is not None and row.get("env_frames") is not None else None
