"""The ``retrograd`` command. Results go to standard output, everything else to standard error."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from retrograd import __version__
from retrograd.core.errors import RetrogradError, UsageError

EXAMPLES = """examples:
  retrograd train                                     DQN on Pong as in Nature 2015 (track A)
  retrograd train env=breakout preset.lr=0.001 seed=3
  retrograd train agent=modern preset=modern replay=prioritized env_protocol=modern_v5_sticky   (track B)
  retrograd evaluate outputs/my_run
  retrograd video outputs/my_run --output game.mp4
  retrograd doctor

every command has its own --help with more examples"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (0 fine, 2 wrong usage, 5 a failure gate, 130 and 143 stopped)."""
    parser = _parser()
    options, late = parser.parse_known_args(arguments)
    words = getattr(options, "overrides", None) or getattr(options, "arguments", None)
    if late and (words is None or any(word.startswith("-") for word in late)):
        parser.error(f"unrecognized arguments: {' '.join(late)}")
    if words is not None:
        words += late  # key=value may also follow an option
    if options.command is None:
        parser.print_help()
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
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # `| head` is not an error
        return 0
    except KeyboardInterrupt:
        print("retrograd: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="retrograd",
        description="Deep reinforcement learning on Atari and anything with the Gymnasium interface.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"retrograd {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    _add_train(commands)
    _add_evaluate(commands)
    _add_video(commands)
    _add_watch(commands)
    doctor = _command(
        commands, "doctor", "say what works on this machine and what a full run needs", "retrograd doctor"
    )
    doctor.add_argument("overrides", nargs="*", metavar="key=value", help="of the run whose needs are asked for")
    doctor.set_defaults(run=_doctor)
    return parser


def _command(commands: Any, name: str, summary: str, *examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=summary[0].upper() + summary[1:] + ".",
        epilog="examples:\n  " + "\n  ".join(examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def _add_train(commands: Any) -> None:
    parser = _command(
        commands,
        "train",
        "train an agent; the run goes to outputs/<run_name>",
        "retrograd train",
        "retrograd train env=breakout agent.double=true seed=3",
        "retrograd train env=ms_pacman training.total_env_frames=2000000 replay.capacity=100000",
        "retrograd train env=CartPole-v1 preset=modern preset.lr=1e-3 training.total_env_frames=100000",
        "retrograd train --config mine.yaml --show-config",
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="config groups and keys, e.g. env=breakout preset.lr=0.001"
    )
    parser.add_argument("--config", metavar="FILE", help="a YAML file with keys, read before the overrides")
    parser.add_argument(
        "--show-config", action="store_true", help="print the resolved config and the protocol, and stop"
    )
    parser.set_defaults(run=_train)


def _add_evaluate(commands: Any) -> None:
    parser = _command(
        commands,
        "evaluate",
        "play a trained agent and print its scores as JSON",
        "retrograd evaluate outputs/my_run",
        "retrograd evaluate outputs/my_run/checkpoints/latest --episodes 100",
        "retrograd evaluate +checkpoint_path=outputs/my_run/checkpoints/best eval.epsilon=0.01",
    )
    _add_agent(parser)
    parser.add_argument(
        "--episodes", type=int, metavar="N", help="games to play (default: the run's eval.full_episodes)"
    )
    parser.set_defaults(run=_evaluate)


def _add_video(commands: Any) -> None:
    parser = _command(
        commands,
        "video",
        "record one game of a trained agent as MP4",
        "retrograd video outputs/my_run",
        "retrograd video outputs/my_run --output pong.mp4",
        "retrograd video +checkpoint_path=outputs/my_run/checkpoints/best +output_video=pong.mp4",
    )
    _add_agent(parser)
    parser.add_argument("--output", metavar="FILE", help="where the video goes (default: <game>_<step>.mp4)")
    parser.set_defaults(run=_video)


def _add_watch(commands: Any) -> None:
    parser = _command(
        commands,
        "watch",
        "watch a trained agent play in a window; without a display, record it",
        "retrograd watch outputs/my_run",
        "retrograd watch outputs/my_run --episodes 3",
    )
    _add_agent(parser)
    parser.add_argument("--episodes", type=int, default=1, metavar="N", help="games to watch")
    parser.set_defaults(run=_watch)


def _add_agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "arguments",
        nargs="+",
        metavar="AGENT [key=value]",
        help="a run folder or a checkpoint folder (or +checkpoint_path=…), then changes to how it is judged",
    )


def _agent_arguments(arguments: Sequence[str]) -> tuple[str, dict[str, Any], dict[str, str]]:
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


def _train(options: argparse.Namespace) -> int:
    from retrograd.config import ConfigManager

    config = ConfigManager().compose(options.overrides, options.config)
    for note in config.notes:
        print(f"retrograd: {note}", file=sys.stderr)
    from retrograd.build import build_trainer, check_memory, describe_protocol, run_folder

    if options.show_config:
        print(config.to_yaml(), end="")
        print(f"# protocol: {describe_protocol(config)}")
        return 0
    run_folder(config)  # refused before torch is loaded, if it is taken
    check_memory(config)
    trainer = build_trainer(config, command_line=["retrograd", *sys.argv[1:]])
    print(f"run folder: {trainer.folder}\nprotocol: {describe_protocol(config)}", file=sys.stderr)
    from retrograd.training.signals import stopping_on_signals

    try:
        with stopping_on_signals(trainer.run) as received:
            summary = trainer.train()
    finally:
        trainer.close()
    print(json.dumps({"run": str(trainer.folder), **summary.get("final", summary)}, indent=2))
    return 128 + received[0] if received else 0


def _evaluate(options: argparse.Namespace) -> int:
    path, changes, extras = _agent_arguments(options.arguments)
    _refuse_extras(extras, ())
    if options.episodes is not None:
        changes["eval.full_episodes"] = options.episodes
    from retrograd.api import evaluate_checkpoint

    print(json.dumps(evaluate_checkpoint(path, changes), indent=2))
    return 0


def _video(options: argparse.Namespace) -> int:
    path, changes, extras = _agent_arguments(options.arguments)
    output = options.output or extras.pop("output_video", None)
    _refuse_extras(extras, ("output_video",))
    from retrograd.api import read_checkpoint
    from retrograd.build import Judge, restore_agent

    checkpoint, config = read_checkpoint(path, changes)
    target = Path(output or f"{config['env']['name']}_{checkpoint.step}.mp4")
    info = Judge(*restore_agent(checkpoint, config)).record(target, step=checkpoint.step)
    print(json.dumps({"video": str(target), "frames": info.frames, "fps": info.fps, "score": info.score}))
    return 0


def _watch(options: argparse.Namespace) -> int:
    path, changes, extras = _agent_arguments(options.arguments)
    _refuse_extras(extras, ())
    from retrograd.api import read_checkpoint
    from retrograd.build import restore_agent
    from retrograd.training.watch import watch

    checkpoint, config = read_checkpoint(path, changes)
    builder, agent = restore_agent(checkpoint, config)
    viewer = builder.viewer(checkpoint.step)
    try:
        fallback = Path(f"{config['env']['name']}_{checkpoint.step}.mp4")
        seen = watch(agent, viewer, step=checkpoint.step, video=fallback, episodes=options.episodes)
    finally:
        viewer.close()
    print(json.dumps({"scores": list(seen.scores), "video": str(seen.video) if seen.video else None}))
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from retrograd.doctor import examine

    report, healthy = examine(options.overrides)
    print(report)
    return 0 if healthy else 1


def _refuse_extras(extras: dict[str, str], allowed: tuple[str, ...]) -> None:
    if extras:
        known = ", ".join(f"+{name}" for name in ("checkpoint_path", *allowed))
        raise UsageError(f"unknown {', '.join('+' + name for name in extras)}; known here are {known}")


if __name__ == "__main__":
    sys.exit(main())
