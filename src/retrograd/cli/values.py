"""``retrograd values``: what a trained agent expects while it plays."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from retrograd.cli.targets import check_target
from retrograd.cli.words import add_agent, add_command, agent_arguments, refuse_extras
from retrograd.core.errors import UsageError


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "values",
        "play a trained agent and show what it expects: values or distributions of every action, as data and pictures",
        "retrograd values outputs/my_run",
        "retrograd values outputs/my_run --episodes 3 --output values",
        "retrograd values outputs/my_run/checkpoints/best --at 0 120 300 eval.epsilon=0",
    )
    add_agent(parser)
    parser.add_argument("--episodes", type=int, default=1, metavar="N", help="games to play (default 1)")
    parser.add_argument("--output", metavar="DIR", help="a new folder (default: values_<game>_<step>)")
    parser.add_argument(
        "--at", nargs="+", default=[], metavar="STEP",
        help="steps to look at closely (default: highest value, lowest value and clearest choice)",
    )  # fmt: skip
    parser.add_argument("--max-steps", type=int, default=10_000, metavar="N", help="leave a game here (default 10000)")
    parser.add_argument("--no-plots", action="store_true", help="write the data alone")
    parser.set_defaults(run=_values)


def _values(options: argparse.Namespace) -> int:
    steps, overrides = _steps(options.at)
    path, changes, extras = agent_arguments([*options.arguments, *overrides])
    refuse_extras(extras, ())
    for name in ("episodes", "max_steps"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} is {getattr(options, name)}, but must be at least 1")
    from retrograd.api import read_checkpoint
    from retrograd.build import restore_agent
    from retrograd.experiments.q_values import Counting, trace_game

    checkpoint, config = read_checkpoint(path, changes)
    folder = Path(options.output or f"values_{config['env']['name'].replace('/', '_')}_{checkpoint.step}")
    check_target(folder, "folder")
    if folder.exists():
        raise UsageError(f"the output folder {folder} exists already; choose another with --output")
    builder, agent = restore_agent(checkpoint, config)
    trace = partial(
        trace_game,
        agent,
        step=checkpoint.step,
        at_steps=steps,
        max_steps=options.max_steps,
    )
    viewer = builder.viewer(checkpoint.step, with_lives=True)
    try:
        counting = Counting.of(config.values, viewer.spec)
        traces = [trace(viewer, counting=counting) for _ in range(options.episodes)]
    finally:
        viewer.close()
    report = {"game": config["env"]["name"], "agent": config["agent"]["name"], "step": checkpoint.step}
    report |= {"output": str(folder), "episodes": [trace.summary() for trace in traces]}
    _write(folder, traces, report, plots=not options.no_plots)
    print(json.dumps(report, indent=2))
    return 0


def _steps(words: Sequence[str]) -> tuple[list[int], list[str]]:
    """Steps to look at, and the key=value words behind them, which the option takes for its own."""
    overrides = [word for word in words if "=" in word]
    steps = [word for word in words if "=" not in word]
    for word in steps:
        if not word.isdecimal():
            raise UsageError(f"--at {word}: a step is a whole number, counted from 0")
    return [int(word) for word in steps], overrides


def _write(folder: Path, traces: list[Any], report: dict[str, Any], *, plots: bool) -> None:
    from retrograd.experiments.figures.values import draw_moments, draw_trace
    from retrograd.experiments.plots import Plotter
    from retrograd.experiments.q_values import write_trace

    plotter = Plotter()
    for number, trace in enumerate(traces, start=1):
        title = f"{report['agent']} on {report['game']}, game {number}"
        if plots:
            plotter.add(f"game_{number}", partial(draw_trace, trace=trace, title=title))
            plotter.add(f"game_{number}_moments", partial(draw_moments, trace=trace))
    for number, trace in enumerate(traces, start=1):
        write_trace(trace, folder, f"game_{number}")
    if plots:
        plotter.save_plots(folder)
    (folder / "values.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
