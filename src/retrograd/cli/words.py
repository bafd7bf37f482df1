"""What the commands share: their form, and how an agent is named on the command line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrograd.core.errors import UsageError

if TYPE_CHECKING:
    from retrograd.training.trainer import Trainer


def add_command(commands: Any, name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n  " + "\n  ".join(examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "arguments",
        nargs="+",
        metavar="AGENT [key=value]",
        help="a run, a checkpoint, an exported folder (or +checkpoint_path=…) or the name of an agent that comes with "
        "the package, such as breakout; then changes to how it is judged",
    )


def agent_arguments(arguments: Sequence[str]) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Path, changes to the config, and the +extras that belong to the command itself."""
    from retrograd.config import parse_values

    extras = dict(word[1:].split("=", 1) for word in arguments if word.startswith("+") and "=" in word)
    paths = [word for word in arguments if "=" not in word]
    if "checkpoint_path" in extras:
        paths.append(extras.pop("checkpoint_path"))
    if len(paths) != 1:
        raise UsageError(f"name one run folder or checkpoint, e.g. outputs/my_run; got {', '.join(paths) or 'none'}")
    changes = parse_values([word for word in arguments if "=" in word and not word.startswith("+")])
    return paths[0], changes, extras


def refuse_extras(extras: dict[str, str], allowed: tuple[str, ...]) -> None:
    if extras:
        known = ", ".join(f"+{name}" for name in ("checkpoint_path", *allowed))
        raise UsageError(f"unknown {', '.join('+' + name for name in extras)}; known here are {known}")


def run_to_the_end(trainer: Trainer) -> int:
    """Train until the budget is spent or a signal comes, print the result as JSON; the exit code."""
    from retrograd.training.signals import stopping_on_signals

    try:
        with stopping_on_signals(trainer.run) as received:
            summary = trainer.train()
    except KeyboardInterrupt:  # a second signal, which does not wait for a checkpoint
        print("retrograd: stopped at once; the last checkpoint is what there is", file=sys.stderr)
        trainer.abandon()
        return 128 + received[0] if received else 130
    finally:
        trainer.close()
    if "final" in summary:
        show_preset(trainer.folder)
    print(json.dumps({"run": str(trainer.folder), **summary.get("final", summary)}, indent=2))
    return 128 + received[0] if received else 0


def show_preset(folder: Path) -> None:
    """A preset shows what it learned: its curve over published ones, and its best game. Other runs are left alone."""
    from retrograd.core.plain_yaml import load_plain_yaml

    if load_plain_yaml((folder / ".hydra" / "config.yaml").read_text(encoding="utf-8")).get("zoo") is None:
        return
    try:
        from retrograd.experiments.plots import draw_curves

        print(f"curve: {draw_curves([folder], folder / 'plots')[0]}", file=sys.stderr)
    except Exception as error:  # a picture is nice to have; the run is done, whatever happens here
        print(f"retrograd: the curve was not drawn: {error}", file=sys.stderr)
    video = folder / "checkpoints" / "best" / "video.mp4"
    if video.is_file():
        print(f"video: {video}", file=sys.stderr)
