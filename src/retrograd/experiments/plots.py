"""Pictures of run folders, with published figures of the same game and protocol underneath.

Runs of different games, or with and without sticky actions, never share a panel: their returns do not
measure the same thing. Only the logs and the saved config of a run are read, so a run may still be going.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
import yaml

from retrograd.core.errors import UsageError, missing_extra, suggest
from retrograd.core.types import Array
from retrograd.experiments import reference
from retrograd.experiments.reference import Curve, FinalScore

# Okabe and Ito's palette: told apart with any color vision, and by lightness in print
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = ((6, 2), (2, 1.5), (7, 2, 1.5, 2), (4, 1.5, 1, 1.5, 1, 1.5), (1, 1.2), (10, 2))
EVALUATION_RANK = {"light": 0, "final": 1, "full": 2}  # which one counts where several share a frame
SHOWN_FIRST = ("DQN", "Double DQN", "Rainbow", "PPO", "C51", "QR-DQN")
MILLION = 1_000_000
SMOOTHING_EPISODES = 100

Published = TypeVar("Published", Curve, FinalScore)


@dataclass(frozen=True)
class RunLog:
    """What a plot needs of one run folder."""

    folder: Path
    config: dict[str, Any]
    eval_frames: Array  # [E]
    eval_mean: Array  # [E]
    eval_std: Array  # [E]
    train_frames: Array  # [K] one entry an episode
    train_return: Array  # [K]

    @cached_property
    def game(self) -> str:
        env = self.config.get("env") or {}
        name = str(env.get("game_id") or env.get("name") or self.folder.name)
        return name.rsplit("/", 1)[-1].split("-v")[0]

    @cached_property
    def algorithm(self) -> str:
        return str((self.config.get("agent") or {}).get("name") or self.folder.name)

    @cached_property
    def family(self) -> str | None:
        """Family of published protocols; None off Atari and for a stickiness nobody published."""
        probability = (self.config.get("env_protocol") or {}).get("repeat_action_probability")
        if probability is None or not _is_atari(self.game):
            return None
        return reference.protocol_family(float(probability))

    @cached_property
    def protocol_label(self) -> str:
        """Empty off Atari, where there is only one way to play."""
        if not _is_atari(self.game):
            return ""
        if self.family is not None:
            return reference.FAMILIES[self.family]
        probability = (self.config.get("env_protocol") or {}).get("repeat_action_probability")
        return "protocol unknown" if probability is None else f"repeat probability {probability}"

    @property
    def last_frame(self) -> int:
        return int(max([0, *self.eval_frames[-1:], *self.train_frames[-1:]]))

    @property
    def score(self) -> float:
        """The last evaluation, or the last training episodes of a run without one."""
        if len(self.eval_mean):
            return float(self.eval_mean[-1])
        return float(np.mean(self.train_return[-SMOOTHING_EPISODES:]))


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
    config_file = folder / ".hydra" / "config.yaml"
    config = yaml.safe_load(config_file.read_text(encoding="utf-8")) if config_file.is_file() else {}
    ordered = sorted(evaluations.items())
    return RunLog(
        folder=folder,
        config=config or {},
        eval_frames=np.array([frames for frames, _ in ordered], dtype=np.float64),
        eval_mean=np.array([values[1] for _, values in ordered], dtype=np.float64),
        eval_std=np.array([values[2] for _, values in ordered], dtype=np.float64),
        train_frames=np.array([row[0] for row in train], dtype=np.float64),
        train_return=np.array([row[1] for row in train], dtype=np.float64),
    )


class Plotter:
    """Draws figures and keeps them until ``save_plots``."""

    def __init__(self) -> None:
        self.figures: dict[str, Any] = {}

    def plot_learning_curves(
        self,
        runs: Iterable[str | Path | RunLog],
        references: bool | Sequence[Curve] = True,
        *,
        max_references: int = 5,
        max_frames: int | None = None,
    ) -> Any:
        """Return against frames; a panel for each game and protocol.

        ``references`` may be the curves themselves; those of another game or protocol are left out of a panel.
        """
        panels = _panels(runs)
        figure, axes = _new_figure(len(panels), height=4.6)
        for axis, (title, group) in zip(axes, panels.items(), strict=True):
            curves = _published_curves(group, references, max_references)
            limit = max_frames or max(1.1 * max(run.last_frame for run in group), 2 * MILLION if curves else 1)
            for index, (algorithm, seeds) in enumerate(_by_algorithm(group).items()):
                _draw_runs(axis, algorithm, seeds, COLORS[index % len(COLORS)], MARKERS[index % len(MARKERS)])
            _draw_published(axis, curves, limit)
            _draw_baselines(axis, group[0].game, limit)
            axis.set(title=title, xlabel="emulator frames (millions)", ylabel="return of a full game")
            axis.set_xlim(0, limit / MILLION)
            axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.15), fontsize=8, frameon=False, handlelength=3.2)
        self.figures["learning_curves"] = figure
        return figure

    def plot_algorithm_comparison(
        self,
        runs: Iterable[str | Path | RunLog],
        references: bool | Sequence[FinalScore] = True,
        *,
        max_references: int = 6,
    ) -> Any:
        """Last scores side by side: a dot a seed, a bar at the median, published scores below in gray."""
        panels = _panels(runs)
        published = [_published_scores(group, references, max_references) for group in panels.values()]
        lines = max(len(_by_algorithm(g)) + len(p) for g, p in zip(panels.values(), published, strict=True))
        figure, axes = _new_figure(len(panels), height=1.4 + 0.34 * lines)
        for axis, (title, group), scores in zip(axes, panels.items(), published, strict=True):
            labels = []
            for index, (algorithm, seeds) in enumerate(_by_algorithm(group).items()):
                values = [run.score for run in seeds]
                color = COLORS[index % len(COLORS)]
                axis.plot([median(values)], [index], "|", color=color, markersize=18, markeredgewidth=2.5)
                axis.plot(values, [index] * len(values), "o", color=color, markersize=5, alpha=0.8)
                millions = max(run.last_frame for run in seeds) / MILLION
                labels.append(f"{algorithm} · {_count(len(seeds))} · {millions:.3g}M frames")
            for index, score in enumerate(scores, start=len(labels)):
                axis.plot([score.score], [index], "D", color="0.45", markerfacecolor="white", markersize=5)
                labels.append(_final_label(score))
            axis.set_yticks(range(len(labels)), labels, fontsize=8)
            axis.set_ylim(len(labels) - 0.5, -0.5)
            axis.set(title=title, xlabel="score of a full game\n● seed   | median   ◇ published")
        self.figures["algorithm_comparison"] = figure
        return figure

    def plot_hyperparameter_sensitivity(self, runs: Iterable[str | Path | RunLog], key: str) -> Any:
        """Last score against one config key, such as ``preset.lr``; a line through the medians."""
        panels = _panels(runs)
        figure, axes = _new_figure(len(panels), height=3.6)
        for axis, (title, group) in zip(axes, panels.items(), strict=True):
            by_value: dict[Any, list[float]] = {}
            for run in group:
                by_value.setdefault(_config_value(run, key), []).append(run.score)
            numeric = all(isinstance(value, int | float) and not isinstance(value, bool) for value in by_value)
            ordered = sorted(by_value, key=None if numeric else str)
            places = ordered if numeric else list(range(len(ordered)))
            for place, value in zip(places, ordered, strict=True):
                axis.plot(
                    [place] * len(by_value[value]), by_value[value], "o", color=COLORS[0], alpha=0.5, markersize=4
                )
            axis.plot(places, [median(by_value[value]) for value in ordered], "-", color=COLORS[0], label="median")
            if numeric and min(ordered) > 0 and max(ordered) / min(ordered) > 20:
                axis.set_xscale("log")
            elif not numeric:
                axis.set_xticks(places, [str(value) for value in ordered])
            axis.set(title=title, xlabel=key, ylabel="score of a full game")
        self.figures["hyperparameter_sensitivity"] = figure
        return figure

    def save_plots(self, folder: str | Path) -> list[Path]:
        """Write every figure drawn so far as PNG and SVG; the same data give the same bytes."""
        if not self.figures:
            raise UsageError("There is nothing to save: no plot was drawn yet.")
        import matplotlib as mpl

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        with mpl.rc_context({"svg.hashsalt": "retrograd"}):
            for name, figure in self.figures.items():
                for suffix, metadata in ((".png", None), (".svg", {"Date": None})):
                    path = folder / f"{name}{suffix}"
                    figure.savefig(path, dpi=200, metadata=metadata, facecolor="white")
                    paths.append(path)
        return paths


def _is_atari(game: str) -> bool:
    return reference.baseline(game) is not None or bool(reference.final_scores(game))


def _read_columns(path: Path, names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    """Rows of the named columns; numbers but for names that end in _type."""
    if not path.is_file():
        return []
    rows = []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        absent = [name for name in names if name not in (reader.fieldnames or names)]
        if absent:
            raise UsageError(f"{str(path)!r} has no column {absent[0]!r}.{suggest(absent[0], reader.fieldnames or ())}")
        for row in reader:
            try:
                values = tuple(row[name] if name.endswith("_type") else float(row[name] or "") for name in names)
            except ValueError:
                continue  # the last line of a run that is still being written
            if all(value is not None for value in values):
                rows.append(values)
    return rows


def _panels(runs: Iterable[str | Path | RunLog]) -> dict[str, list[RunLog]]:
    panels: dict[str, list[RunLog]] = {}
    for run in runs:
        log = run if isinstance(run, RunLog) else read_run(run)
        panels.setdefault(" · ".join(filter(None, (log.game, log.protocol_label))), []).append(log)
    if not panels:
        raise UsageError("There is nothing to plot: give at least one run folder.")
    return panels


def _by_algorithm(runs: Sequence[RunLog]) -> dict[str, list[RunLog]]:
    groups: dict[str, list[RunLog]] = {}
    for run in runs:
        groups.setdefault(run.algorithm, []).append(run)
    return groups


def _new_figure(panels: int, height: float) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("Plots", "plots") from error
    columns = min(panels, 2)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(6.4 * columns, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, index + 1) for index in range(panels)]
    for axis in axes:
        axis.grid(color="0.9", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _choose(figures: Iterable[Published], runs: Sequence[RunLog], limit: int) -> list[Published]:
    """Two of each of the runs' own algorithms, one of each well-known one, then whatever there is."""
    own = {reference.game_key(run.algorithm) for run in runs}
    times: Counter[str] = Counter()

    def rank(figure: Published) -> tuple[int, bool, bool]:
        known = SHOWN_FIRST.index(figure.algorithm) if figure.algorithm in SHOWN_FIRST else len(SHOWN_FIRST)
        is_own = reference.game_key(figure.algorithm) in own
        return -1 if is_own else known, figure.source != "dopamine_tf", figure.protocol.endswith("_train")

    later: list[Published] = []
    chosen: list[Published] = []
    for figure in sorted(figures, key=rank):
        times[figure.algorithm] += 1
        enough = times[figure.algorithm] > (2 if reference.game_key(figure.algorithm) in own else 1)
        (later if enough else chosen).append(figure)
    return (chosen + later)[:limit]


def _published_curves(runs: Sequence[RunLog], given: bool | Sequence[Curve], limit: int) -> list[Curve]:
    family = runs[0].family
    if not given or family is None:
        return []
    if given is True:
        return _choose(reference.curves(runs[0].game, family), runs, limit)
    game = reference.game_key(runs[0].game)
    return [curve for curve in given if curve.family == family and reference.game_key(curve.game) == game]


def _published_scores(runs: Sequence[RunLog], given: bool | Sequence[FinalScore], limit: int) -> list[FinalScore]:
    family = runs[0].family
    if not given or family is None:
        return []
    if given is True:
        return _choose(reference.final_scores(runs[0].game, family), runs, limit)
    game = reference.game_key(runs[0].game)
    return [score for score in given if score.family == family and reference.game_key(score.game) == game]


def _draw_published(axis: Any, curves: Sequence[Curve], limit: float) -> None:
    ends = []
    for index, curve in enumerate(curves):
        frames = np.array(curve.frames, dtype=np.float64)
        if frames[0] > limit:
            continue
        end = min(limit, frames[-1])
        seen = np.append(frames[frames < end], end)
        values = np.interp(seen, frames, curve.mean_return)
        letter = "abcdefghijklmnopqrstuvwxyz"[index % 26]
        style = {"color": "0.45", "linewidth": 1.0, "dashes": DASHES[index % len(DASHES)], "zorder": 1.5}
        axis.plot(seen / MILLION, values, label=f"{letter}: {curve.label}", **style)
        ends.append((float(values[-1]), end / MILLION, letter))
    # letters tell the gray lines apart in print; one that would cover its neighbor moves aside
    low, high = axis.get_ylim()
    previous, shift = -math.inf, 0
    for value, frame, letter in sorted(ends):
        shift = shift + 1 if value - previous < 0.045 * (high - low) else 0
        place = (4 + 9 * shift, 0)
        axis.annotate(letter, (frame, value), place, textcoords="offset points", fontsize=8, color="0.3", va="center")
        previous = value


def _draw_runs(axis: Any, algorithm: str, seeds: Sequence[RunLog], color: str, marker: str) -> None:
    evaluated = [run for run in seeds if len(run.eval_frames)]
    if evaluated:
        grid = np.unique(np.concatenate([run.eval_frames for run in evaluated]))
        grid = grid[grid <= min(run.eval_frames[-1] for run in evaluated)]  # no seed is extended beyond its end
        values = np.stack([np.interp(grid, run.eval_frames, run.eval_mean) for run in evaluated])  # [S, E]
        mean = values.mean(axis=0)
        if len(evaluated) == 1:
            spread, low, high = "± std of episodes", mean - evaluated[0].eval_std, mean + evaluated[0].eval_std
        else:
            spread, low, high = "mean, lowest to highest", values.min(axis=0), values.max(axis=0)
        label = f"{algorithm} · evaluation · {_count(len(evaluated))}, {spread}"
        axis.fill_between(grid / MILLION, low, high, color=color, alpha=0.18, linewidth=0, zorder=2)
        axis.plot(grid / MILLION, mean, "-", marker=marker, color=color, markersize=4, lw=1.8, label=label, zorder=3)
    for index, run in enumerate(run for run in seeds if len(run.train_frames)):
        window = min(SMOOTHING_EPISODES, len(run.train_return))
        smooth = np.convolve(run.train_return, np.full(window, 1 / window), mode="valid")
        label = f"{algorithm} · training return, mean of {window} episodes" if index == 0 else ""
        axis.plot(
            run.train_frames[window - 1 :] / MILLION, smooth, ":", color=color, linewidth=1.3, label=label, zorder=3
        )


def _draw_baselines(axis: Any, game: str, limit: float) -> None:
    known = reference.baseline(game)
    low, high = axis.get_ylim()
    for name, value in zip(("random", "human"), known or (), strict=False):
        if low - 0.25 * (high - low) <= value <= high + 0.25 * (high - low):  # never flatten the curves for a line
            axis.axhline(value, color="0.75", linewidth=0.8, zorder=1)
            axis.text(limit / MILLION, value, f"{name} ", fontsize=7, color="0.45", va="bottom", ha="right")


def _config_value(run: RunLog, key: str) -> Any:
    value: Any = run.config
    for part in key.split("."):
        if not isinstance(value, dict) or part not in value:
            known = value if isinstance(value, dict) else ()
            raise UsageError(f"The config of {str(run.folder)!r} has no key {key!r}.{suggest(part, known)}")
        value = value[part]
    return value if isinstance(value, int | float | str) else str(value)


def _final_label(score: FinalScore) -> str:
    measured = reference.PROTOCOLS[score.protocol][1]
    budget = f" · {score.frames / MILLION:.3g}M frames" if score.frames else ""
    return f"{score.algorithm} · {reference.source_label(score.source)} · {measured}{budget}"


def _count(seeds: int) -> str:
    return "1 seed" if seeds == 1 else f"{seeds} seeds"
