"""The pictures of an experiment: drawn one by one, kept, and saved together as PNG and SVG.

Runs of different games or protocols never share a panel, and only published figures of the same game and protocol
family are laid under a run. How each picture is drawn is said in ``figures/``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from retrograd.core.errors import UsageError
from retrograd.core.seeding import Streams
from retrograd.experiments.figures.learning import draw_learning_curves
from retrograd.experiments.figures.profiles import draw_aggregates, draw_improvement, draw_profiles
from retrograd.experiments.figures.scores import draw_comparison, draw_sensitivity
from retrograd.experiments.figures.style import LIGHT, THEMES, Theme, find_theme, themed
from retrograd.experiments.measures import (
    ScoreTable,
    check_metric,
    leave_out_unevaluated,
    score_tables,
)
from retrograd.experiments.reference import Curve, FinalScore
from retrograd.experiments.runs import SMOOTHING_EPISODES, Panel, RunLog, Runs, panels_of, read_run

__all__ = ["Plotter", "RunLog", "read_run"]

Draw = Callable[[Theme], Any]


class Plotter:
    """Draws figures and keeps them until ``save_plots``.

    Wherever runs are asked for, a list of run folders is grouped by config (seeds of one config belong together);
    a mapping of labels to run folders is drawn as it is given.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed  # of the bootstrap
        self.figures: dict[str, Any] = {}
        self._draw: dict[str, Draw] = {}

    def plot_learning_curves(
        self,
        runs: Runs,
        references: bool | Sequence[Curve] = True,
        *,
        max_references: int = 5,
        max_frames: float | None = None,
        smooth_episodes: int = SMOOTHING_EPISODES,
    ) -> Any:
        """Return against frames; a panel for each game and protocol, a band over the seeds of each config.

        ``references`` may be the curves themselves; those of another game or protocol are left out of a panel.
        """
        panels = panels_of(runs)
        options = {"max_references": max_references, "max_frames": max_frames, "smooth_episodes": smooth_episodes}
        return self.add(
            "learning_curves",
            lambda theme: draw_learning_curves(theme, panels, references, streams=Streams(self.seed), **options),  # type: ignore[arg-type]
        )

    def plot_algorithm_comparison(
        self,
        runs: Runs,
        references: bool | Sequence[FinalScore] = True,
        *,
        max_references: int = 6,
        metric: str = "final",
    ) -> Any:
        """Scores side by side: a dot a seed, a bar at the median, published scores below in gray."""
        panels = _scored(runs, metric)
        return self.add(
            "algorithm_comparison",
            lambda theme: draw_comparison(
                theme,
                panels,
                references if metric != "auc" else False,  # nobody publishes areas
                max_references=max_references,
                metric=metric,
                streams=Streams(self.seed),
            ),
        )

    def plot_hyperparameter_sensitivity(self, runs: Runs, key: str, *, metric: str = "final") -> Any:
        """Score against one config key, such as ``preset.lr``; a line through the medians."""
        panels = _scored(runs, metric)
        return self.add(
            f"hyperparameter_sensitivity_{key.replace('.', '_')}",
            lambda theme: draw_sensitivity(theme, panels, key, metric=metric, streams=Streams(self.seed)),
        )

    def plot_performance_profiles(self, runs: Runs | Sequence[ScoreTable], *, metric: str = "final") -> Any:
        """Share of runs above each human-normalized score, over all games of one protocol."""
        tables = _tables(runs, metric)
        return self.add("performance_profiles", lambda theme: draw_profiles(theme, tables, Streams(self.seed)))

    def plot_aggregate_scores(self, runs: Runs | Sequence[ScoreTable], *, metric: str = "final") -> Any:
        """Median, IQM, mean and optimality gap of the human-normalized scores, with intervals."""
        tables = _tables(runs, metric)
        return self.add("aggregate_scores", lambda theme: draw_aggregates(theme, tables, Streams(self.seed)))

    def plot_probability_of_improvement(self, runs: Runs | Sequence[ScoreTable], *, metric: str = "final") -> Any:
        """Chance that a run of one algorithm beats a run of another, for each pair, with intervals."""
        tables = [table for table in _tables(runs, metric) if len(table.scores) > 1]
        if not tables:
            raise UsageError("A probability of improvement needs two configs that played the same games.")
        return self.add("probability_of_improvement", lambda theme: draw_improvement(theme, tables, Streams(self.seed)))

    def add(self, name: str, draw: Draw) -> Any:
        """Draw a figure of your own and keep it under ``name``; ``draw`` takes the theme."""
        with themed(LIGHT):
            figure = draw(LIGHT)
        self.figures[name], self._draw[name] = figure, draw
        return figure

    def save_plots(self, folder: str | Path, *, themes: Sequence[str] = tuple(THEMES)) -> list[Path]:
        """Write every figure drawn so far as PNG and SVG, light and dark; the same data give the same bytes.

        ``learning_curves.png`` is for print, ``learning_curves_dark.png`` for dark pages.
        """
        if not self.figures:
            raise UsageError("There is nothing to save: no plot was drawn yet.")
        chosen = [find_theme(name) for name in themes]
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, figure in self.figures.items():
            for theme in chosen:
                stem = name if theme is LIGHT else f"{name}_{theme.name}"
                with themed(theme):
                    drawn = figure if theme is LIGHT else self._draw[name](theme)
                    for suffix, metadata in ((".png", None), (".svg", {"Date": None})):
                        path = folder / f"{stem}{suffix}"
                        drawn.savefig(path, dpi=200, metadata=metadata, facecolor=theme.background)
                        paths.append(path)
        return paths


def draw_curves(folders: Sequence[str | Path], target: str | Path) -> list[Path]:
    """The learning curves of runs over published ones of the same game and protocol, as far as the runs went."""
    runs = [read_run(folder) for folder in folders]
    plotter = Plotter()
    plotter.plot_learning_curves(runs)
    return plotter.save_plots(target)


def _scored(runs: Runs, metric: str) -> list[Panel]:
    check_metric(metric)
    return leave_out_unevaluated(panels_of(runs), metric)[0]


def _tables(runs: Runs | Sequence[ScoreTable], metric: str) -> list[ScoreTable]:
    given = list(runs) if not hasattr(runs, "items") else []
    if given and all(isinstance(table, ScoreTable) for table in given):
        return [table for table in given if isinstance(table, ScoreTable)]
    tables = score_tables(panels_of(given or runs), metric)  # type: ignore[arg-type]
    if not tables:
        raise UsageError("No game here has a human score, or no game was played by all: nothing to normalize.")
    return tables
