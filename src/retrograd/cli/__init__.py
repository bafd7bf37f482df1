"""The ``retrograd`` command. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import argparse
import errno
import logging
import os
import sys
from collections.abc import Sequence

from retrograd import __version__
from retrograd.cli import (
    benchmark,
    compare,
    dashboard,
    doctor,
    explain,
    export,
    play,
    resume,
    sweep,
    train,
    values,
    zoo,
)
from retrograd.core.errors import ResourceError, RetrogradError, UsageError

EXAMPLES = """examples:
  retrograd train                                     DQN on Pong as in Nature 2015 (track A)
  retrograd train env=breakout preset.lr=0.001 seed=3
  retrograd train agent=modern preset=modern replay=prioritized env_protocol=modern_v5_sticky   (track B)
  retrograd resume outputs/my_run                     go on after a stop or a crash, exactly
  retrograd evaluate outputs/my_run
  retrograd video outputs/my_run --output game.mp4
  retrograd sweep agent=ppo env=cartpole agent.network=separate preset.lr=0.001,0.003 seed=0,1,2,3,4
  retrograd compare outputs/my_run outputs/another_run --reference
  retrograd explain outputs/my_run                    what it looks at: saliency, values, visited states
  retrograd dashboard                                 look at all runs in the browser
  retrograd zoo run pong_cpu
  retrograd benchmark agent=ppo                       how fast a run would go here
  retrograd doctor

every command has its own --help with more examples"""

# in the order of the help; each loads what it needs when it runs
COMMANDS = (train, resume, play, values, explain, sweep, compare, zoo, export, dashboard, benchmark, doctor)
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: docs/reliability.md lists them."""
    options = parse(arguments)
    if options.command is None:
        _parser().print_help()
        return 0
    logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stderr, level=logging.WARNING)
    try:
        code: int = options.run(options)
        return code
    except RetrogradError as error:
        print(f"retrograd: {error}", file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # an OSError, but none of those below
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` is not an error
        return 0
    except OSError as error:
        if error.filename is None and error.errno not in DISK_FULL:
            raise  # about no file: a mistake of ours, and its traceback tells where
        about = "" if error.filename is None else f"{error.filename}: "
        print(f"retrograd: {about}{error.strerror}", file=sys.stderr)
        return ResourceError.exit_code if error.errno in DISK_FULL else UsageError.exit_code
    except KeyboardInterrupt:
        print("retrograd: interrupted", file=sys.stderr)
        return 130


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of one command; key=value words may also follow an option."""
    parser = _parser()
    options, late = parser.parse_known_args(arguments)
    words = getattr(options, "overrides", getattr(options, "arguments", None))
    if late and (words is None or any(word.startswith("-") for word in late)):
        parser.error(f"unrecognized arguments: {' '.join(late)}")
    if words is not None:
        words += late
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="retrograd",
        description="Deep reinforcement learning on Atari and anything with the Gymnasium interface.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"retrograd {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for command in COMMANDS:
        command.add_to(commands)
    return parser
