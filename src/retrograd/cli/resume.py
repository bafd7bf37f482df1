"""``retrograd resume``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from retrograd.cli.words import add_command, agent_arguments, refuse_extras, run_to_the_end


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "resume",
        "go on with a run that was stopped or killed, exactly where its newest checkpoint was saved",
        "retrograd resume outputs/my_run",
        "retrograd resume outputs/my_run training.total_env_frames=100000000     go on for longer",
        "retrograd resume outputs/my_run checkpoint.every_frames=1000000 hardware.env_threads=2",
        "retrograd resume +checkpoint_path=outputs/my_run/checkpoints/latest",
    )
    parser.add_argument(
        "arguments",
        nargs="+",
        metavar="RUN [key=value]",
        help="a run folder, then keys that may change: budget, checkpoints, hardware, how much is evaluated",
    )
    parser.set_defaults(run=_resume)


def _resume(options: argparse.Namespace) -> int:
    path, changes, extras = agent_arguments(options.arguments)
    refuse_extras(extras, ())
    from retrograd.build.resume import resume_trainer

    resumed = resume_trainer(path, changes, command_line=["retrograd", *sys.argv[1:]])
    print(f"run folder: {resumed.trainer.folder}", file=sys.stderr)
    for note in resumed.notes:
        print(f"retrograd: {note}", file=sys.stderr)
    return run_to_the_end(resumed.trainer)
