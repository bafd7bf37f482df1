"""``retrograd explain``: what a trained agent looks at and expects while it plays."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrograd.cli.targets import check_target
from retrograd.cli.words import add_agent, add_command, agent_arguments, refuse_extras
from retrograd.core.errors import UsageError, missing_extra, suggest

if TYPE_CHECKING:
    from retrograd.experiments.explanation import Explanation

TELL_SECONDS = 5.0
OWN_FILES = ("game.json", "visits.npz")  # in every folder that was written here


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "explain",
        "play a trained agent and show what it looks at: saliency, values and visited states, for the dashboard and as "
        "PNG and MP4",
        "retrograd explain outputs/my_run",
        "retrograd explain outputs/my_run --checkpoint latest --steps 1000 --every 10",
        "retrograd explain outputs/my_run --saliency perturbation,gradient,integrated --seed 7",
        "retrograd explain outputs/my_run --saliency none --replace eval.epsilon=0",
        "retrograd dashboard        # page Agent view",
    )
    add_agent(parser)
    parser.add_argument("--checkpoint", metavar="NAME", help="best, latest, step_000500000 or 500000 (default: best)")
    parser.add_argument("--steps", type=int, default=400, metavar="N", help="of the game to explain (default 400)")
    parser.add_argument("--every", type=int, default=4, metavar="K", help="a saliency map every K steps (default 4)")
    parser.add_argument(
        "--saliency", metavar="KINDS",
        help="perturbation, gradient, integrated, several of them with commas, or none (default: the first two)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="another game (default: the run's own seed)")
    parser.add_argument(
        "--visit-steps", type=int, default=2000, metavar="N", help="to play for the heatmap of states (default 2000)"
    )
    parser.add_argument("--output", metavar="DIR", help="a new folder (default: RUN/explain/step_<number>)")
    parser.add_argument("--replace", action="store_true", help="make it anew where it was made before")
    parser.add_argument("--no-plots", action="store_true", help="write the data and the video, no PNG and SVG")
    parser.add_argument("--no-video", action="store_true", help="write no video")
    parser.set_defaults(run=_explain)


def _explain(options: argparse.Namespace) -> int:
    path, changes, extras = agent_arguments(options.arguments)
    refuse_extras(extras, ())
    if options.seed is not None:
        changes["seed"] = options.seed
    if not options.no_plots and importlib.util.find_spec("matplotlib") is None:
        raise missing_extra("Plots (--no-plots leaves them out)", "plots")
    from retrograd.api import read_checkpoint
    from retrograd.build import restore_agent
    from retrograd.experiments.explanation import Wishes, explain_game
    from retrograd.experiments.q_values import Counting
    from retrograd.training import durable

    wishes = Wishes(options.steps, options.every, _kinds(options.saliency), options.visit_steps)
    checkpoint, config = read_checkpoint(_checkpoint(Path(path), options.checkpoint), changes)
    folder = _folder(options, checkpoint, config)
    if os.path.lexists(folder):
        _check_replacing(folder, options.replace)
    check_target(folder, "folder")
    builder, agent = restore_agent(checkpoint, config)
    viewer = builder.viewer(checkpoint.step, with_lives=True)
    temporary = folder.with_name(f".tmp-{folder.name}-{os.getpid()}")
    try:
        wishes.kinds(viewer.spec)
        temporary.mkdir(parents=True)
        explanation = explain_game(
            agent,
            viewer,
            temporary,
            step=checkpoint.step,
            counting=Counting.of(config.values, viewer.spec),
            wishes=wishes,
            tell=_Teller(),
        )
        report = {"game": config["env"]["name"], "agent": config["agent"]["name"], "step": checkpoint.step}
        report |= {"env_frames": checkpoint.env_frames, "seed": config["seed"], "checkpoint": checkpoint.path.name}
        _draw(explanation, options, f"{report['agent']} on {report['game']}, step {checkpoint.step:,}")
        durable.write_json(temporary / "game.json", {**report, **explanation.describe()})
        for file in sorted(temporary.iterdir()):
            durable.sync_file(file)
        if os.path.lexists(folder):
            durable.discard_folder(folder)
        durable.publish_folder(temporary, folder)
    finally:
        viewer.close()
        durable.remove_folder(temporary)
    shown = {"output": str(folder), "files": sorted(file.name for file in folder.iterdir())}
    print(json.dumps({**report, **explanation.trace.summary(), **shown}, indent=2))
    return 0


def _kinds(words: str | None) -> tuple[str, ...] | None:
    if words is None:
        return None
    kinds = tuple(word.strip() for word in words.split(",") if word.strip())
    if not kinds:
        raise UsageError("--saliency is empty: name kinds of maps, or none")
    return () if kinds == ("none",) else kinds


def _checkpoint(path: Path, name: str | None) -> Path:
    """The checkpoint ``name`` of a run; a run, checkpoint or bundle alone speaks for itself."""
    if name is None:
        return path
    folder = path / "checkpoints"
    if not folder.is_dir():
        raise UsageError(f"--checkpoint {name}: {path} is no run folder, it has no checkpoints to choose from")
    known = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    wanted = f"step_{int(name):09d}" if name.isdecimal() else name
    if wanted not in known:
        raise UsageError(
            f"--checkpoint {name}: there is none of that name in {folder}.{suggest(wanted, known)} "
            f"There are {', '.join(known) or 'none'}."
        )
    return folder / wanted


def _folder(options: argparse.Namespace, checkpoint: Any, config: Any) -> Path:
    """In the run folder, where the dashboard finds it; beside us for a bundle, which belongs to no run."""
    if options.output:
        return Path(options.output).absolute()
    other = "" if options.seed is None else f"_seed{options.seed}"
    above = checkpoint.path.parent
    if above.name == "checkpoints" and (above.parent / ".hydra").is_dir():
        return Path(above.parent) / "explain" / f"step_{checkpoint.step:09d}{other}"
    return Path(f"explain_{config['env']['name'].replace('/', '_')}_{checkpoint.step}{other}")


def _check_replacing(folder: Path, replace: bool) -> None:
    """Only what this command has made is made anew: anything else in its place would be lost."""
    if not replace:
        raise UsageError(f"{folder} exists already: --replace makes it anew, --output or --seed another one")
    if not all((folder / name).is_file() for name in OWN_FILES):
        raise UsageError(f"--replace: {folder} is no explanation, which has {' and '.join(OWN_FILES)}; left alone")


def _draw(explanation: Explanation, options: argparse.Namespace, title: str) -> None:
    from retrograd.experiments.figures.explanation import draw_telling, draw_visits
    from retrograd.experiments.figures.film import write_film
    from retrograd.experiments.plots import Plotter

    if not options.no_plots:
        plotter = Plotter()
        plotter.add("visits", partial(draw_visits, heatmap=explanation.visits, title=title))
        if explanation.pictures:
            plotter.add("moments", partial(draw_telling, explanation=explanation, title=title))
        plotter.save_plots(explanation.folder)
    if explanation.pictures and not options.no_video:
        write_film(explanation, explanation.folder / "game.mp4", title=title)


class _Teller:
    """Says now and then how far it is: maps of a long game take minutes."""

    def __init__(self) -> None:
        self._told = time.monotonic()

    def __call__(self, words: str) -> None:
        if time.monotonic() - self._told >= TELL_SECONDS:
            self._told = time.monotonic()
            print(words, file=sys.stderr)
