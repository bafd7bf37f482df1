"""``retrograd evaluate``, ``video`` and ``watch``: a trained agent plays."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from retrograd.cli.targets import check_target
from retrograd.cli.words import add_agent, add_command, agent_arguments, refuse_extras


def add_to(commands: Any) -> None:
    _add_evaluate(commands)
    _add_video(commands)
    _add_watch(commands)


def _add_evaluate(commands: Any) -> None:
    parser = add_command(
        commands,
        "evaluate",
        "play a trained agent and print its scores as JSON",
        "retrograd evaluate breakout",
        "retrograd evaluate outputs/my_run",
        "retrograd evaluate outputs/my_run/checkpoints/latest --episodes 100",
        "retrograd evaluate +checkpoint_path=outputs/my_run/checkpoints/best eval.epsilon=0.01",
    )
    add_agent(parser)
    parser.add_argument(
        "--episodes", type=int, metavar="N", help="games to play (default: the run's eval.full_episodes)"
    )
    parser.set_defaults(run=_evaluate)


def _add_video(commands: Any) -> None:
    parser = add_command(
        commands,
        "video",
        "record one game of a trained agent as MP4",
        "retrograd video breakout",
        "retrograd video outputs/my_run",
        "retrograd video outputs/my_run --output pong.mp4",
        "retrograd video +checkpoint_path=outputs/my_run/checkpoints/best +output_video=pong.mp4",
    )
    add_agent(parser)
    parser.add_argument("--output", metavar="FILE", help="where the video goes (default: <game>_<step>.mp4)")
    parser.set_defaults(run=_video)


def _add_watch(commands: Any) -> None:
    parser = add_command(
        commands,
        "watch",
        "watch a trained agent play in a window; without a display, record it",
        "retrograd watch breakout",
        "retrograd watch outputs/my_run",
        "retrograd watch outputs/my_run --episodes 3",
    )
    add_agent(parser)
    parser.add_argument("--episodes", type=int, default=1, metavar="N", help="games to watch")
    parser.set_defaults(run=_watch)


def _evaluate(options: argparse.Namespace) -> int:
    path, changes, extras = agent_arguments(options.arguments)
    refuse_extras(extras, ())
    if options.episodes is not None:
        changes["eval.full_episodes"] = options.episodes
    from retrograd.api import evaluate_checkpoint

    print(json.dumps(evaluate_checkpoint(path, changes), indent=2))
    return 0


def _video(options: argparse.Namespace) -> int:
    path, changes, extras = agent_arguments(options.arguments)
    output = options.output or extras.pop("output_video", None)
    refuse_extras(extras, ("output_video",))
    from retrograd.api import read_checkpoint
    from retrograd.build import Judge, restore_agent

    checkpoint, config = read_checkpoint(path, changes)
    target = check_target(output or _video_name(config["env"]["name"], checkpoint.step), "file")
    info = Judge(*restore_agent(checkpoint, config)).record(target, step=checkpoint.step)
    print(json.dumps({"video": str(target), "frames": info.frames, "fps": info.fps, "score": info.score}))
    return 0


def _watch(options: argparse.Namespace) -> int:
    path, changes, extras = agent_arguments(options.arguments)
    refuse_extras(extras, ())
    from retrograd.api import read_checkpoint
    from retrograd.build import restore_agent
    from retrograd.training.watch import watch

    checkpoint, config = read_checkpoint(path, changes)
    builder, agent = restore_agent(checkpoint, config)
    viewer = builder.viewer(checkpoint.step)
    try:
        fallback = Path(_video_name(config["env"]["name"], checkpoint.step))
        seen = watch(agent, viewer, step=checkpoint.step, video=fallback, episodes=options.episodes)
    finally:
        viewer.close()
    print(json.dumps({"scores": list(seen.scores), "video": str(seen.video) if seen.video else None}))
    return 0


def _video_name(game: str, step: int) -> str:
    """A file in this folder: the slash of an id would make one of its own."""
    return f"{game.replace('/', '_')}_{step}.mp4"
