"""``retrograd compare`` and ``retrograd reference``: runs beside each other and beside what is published."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrograd.cli.targets import check_target
from retrograd.cli.words import add_command
from retrograd.core.errors import UsageError

if TYPE_CHECKING:
    from retrograd.experiments.runs import Panel, RunLog

OUTPUT = "outputs/comparison"


def add_to(commands: Any) -> None:
    _add_compare(commands)
    _add_reference(commands)


def _add_compare(commands: Any) -> None:
    parser = add_command(
        commands,
        "compare",
        "compare runs in a table and in plots; seeds of one config are taken together",
        "retrograd compare outputs/pong_ppo --reference",
        "retrograd compare outputs/*_dqn_seed* outputs/*_ppo_seed* --output paper/figures",
        "retrograd compare outputs/sweeps/ppo_cartpole --metric auc --threshold 195",
        "retrograd compare outputs/a outputs/b --no-plots | jq .panels[0].groups",
    )
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run folders, or folders that hold them, such as a sweep's")
    add("--reference", action="store_true", help="lay published figures of the same game and protocol beside them")
    add("--metric", default="final", help="final, best, train or auc (default: final, the last evaluation)")
    add("--threshold", type=float, metavar="RETURN", help="also tell after how many frames this return was reached")
    add("--smooth", type=int, default=100, metavar="N", help="games a point of a training curve averages (default 100)")
    add("--confidence", type=float, default=0.95, metavar="P", help="of the intervals (default 0.95)")
    add("--output", default=OUTPUT, metavar="DIR", help=f"where plots, table and JSON go (default {OUTPUT})")
    add("--no-plots", action="store_true", help="write no files")
    parser.set_defaults(run=_compare)


def _add_reference(commands: Any) -> None:
    parser = add_command(
        commands,
        "reference",
        "list what is published about a game: curves, final scores, human and random play, with sources",
        "retrograd reference pong",
        "retrograd reference breakout --protocol no_sticky",
        "retrograd reference ALE/Qbert-v5 --protocol sticky_eval --json",
        "retrograd reference",
    )
    parser.add_argument("game", nargs="?", help="a game in any spelling; without one, the list of games")
    parser.add_argument(
        "--protocol", metavar="NAME", help="a protocol or a family of them, e.g. sticky or no_sticky_eval"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.set_defaults(run=_reference)


def _compare(options: argparse.Namespace) -> int:
    from retrograd.experiments.comparison import Comparison, drop_repeated_seeds
    from retrograd.experiments.runs import panels_of
    from retrograd.experiments.tables import comparison_rows, comparison_text, write_csv

    comparison = Comparison(options.metric, options.threshold, options.confidence)
    if options.smooth < 1:
        raise UsageError(f"--smooth is {options.smooth}: must be at least 1")
    if options.threshold is not None and not math.isfinite(options.threshold):
        raise UsageError(f"--threshold is {options.threshold}: must be a finite number")
    if not options.no_plots:
        check_target(options.output, "folder")
    runs, skipped = _read(options.runs)
    runs, repeated = drop_repeated_seeds(runs)
    comparison.notes += skipped + repeated
    panels = panels_of(runs)
    table = comparison.table(panels, references=options.reference)
    table["plots"] = []
    if not options.no_plots:
        folder = Path(options.output)
        table["plots"] = [str(path) for path in _draw(panels, options, folder)]
        write_csv(folder / "comparison.csv", comparison_rows(table))
        (folder / "comparison.json").write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")
    print(comparison_text(table), file=sys.stderr)
    print(json.dumps(table, indent=2))
    return 0


def _read(folders: Sequence[str]) -> tuple[list[RunLog], list[str]]:
    """The runs, and a note for each that was found below a folder but has nothing to show yet."""
    from retrograd.experiments.runs import find_runs, read_run

    named = {Path(folder).resolve() for folder in folders}
    runs, notes = [], []
    for folder in find_runs(folders):
        try:
            runs.append(read_run(folder))
        except UsageError as error:
            if folder.resolve() in named:
                raise
            notes.append(f"left out: {error}")
    if not runs:
        raise UsageError(f"There is no run with results in {', '.join(folders)}.")
    return runs, notes


def _draw(panels: Sequence[Panel], options: argparse.Namespace, folder: Path) -> list[Path]:
    from retrograd.experiments.measures import score_tables
    from retrograd.experiments.plots import Plotter

    plotter = Plotter()
    plotter.plot_learning_curves(panels, options.reference, smooth_episodes=options.smooth)
    plotter.plot_algorithm_comparison(panels, options.reference, metric=options.metric)
    if options.metric != "auc":
        tables = [table for table in score_tables(panels, options.metric) if len(table.games) > 1]
        if tables:
            plotter.plot_performance_profiles(tables)
            plotter.plot_aggregate_scores(tables)
        if any(len(table.scores) > 1 for table in tables):
            plotter.plot_probability_of_improvement(tables)
    return plotter.save_plots(folder)


def _reference(options: argparse.Namespace) -> int:
    from retrograd.experiments import known
    from retrograd.experiments.tables import games_text, reference_text

    if options.game is None:
        games = known.list_games()
        print(json.dumps(games, indent=2) if options.json else games_text(games))
        return 0
    table = known.about(options.game, options.protocol)
    print(json.dumps(table, indent=2) if options.json else reference_text(table))
    return 0
