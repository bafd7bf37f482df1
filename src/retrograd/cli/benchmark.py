"""``retrograd benchmark``: how fast a run would go on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from retrograd.cli.words import add_command
from retrograd.core.errors import UsageError

if TYPE_CHECKING:
    from retrograd.build.pace import Pace
    from retrograd.config import Config

LONGEST = 3600.0


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "benchmark",
        "play and learn for some seconds and say how fast that is, where the time goes and how long the run would take",
        "retrograd benchmark",
        "retrograd benchmark agent=ppo env=breakout",
        "retrograd benchmark agent=rainbow hardware.torch_threads=1 --seconds 60",
        "retrograd benchmark agent=ppo training.null_learner=true       what the framework itself costs",
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the run whose speed is asked for")
    parser.add_argument("--config", metavar="FILE", help="a YAML file with keys, read before the overrides")
    parser.add_argument("--seconds", type=float, default=20.0, metavar="N", help="under the clock (default 20)")
    parser.set_defaults(run=_benchmark)


def _benchmark(options: argparse.Namespace) -> int:
    if not 0 < options.seconds <= LONGEST:
        raise UsageError(f"--seconds is {options.seconds}, but must be above 0 and at most {LONGEST:.0f}")
    from retrograd.build.pace import measure_pace, refuse_paceless
    from retrograd.config import ConfigManager

    config = ConfigManager().compose(options.overrides, options.config)
    refuse_paceless(config, "retrograd benchmark")
    print(f"retrograd: {options.seconds:g} seconds under the clock; nothing else should run meanwhile", file=sys.stderr)
    pace = measure_pace(config, options.seconds)
    learns = not config["training"]["null_learner"]
    report = _report(config, pace, pace.limit(options.seconds / 3) if learns else None)
    print(json.dumps(report, indent=2))
    return 0


def _report(config: Config, pace: Pace, limit: float | None) -> dict[str, Any]:
    import torch

    from retrograd.build import planned_spec

    spec, frames, known = planned_spec(config), config["training"]["total_env_frames"], sum(pace.phases.values())
    return {
        "game": config["env"]["name"],
        "agent": config["agent"]["name"],
        "torch_threads": torch.get_num_threads(),
        "seconds": round(pace.seconds, 1),
        "steps_per_second": round(pace.steps_per_second, 1),
        "updates_per_second": round(pace.updates / pace.seconds, 2),
        "share_of_time": {name: round(seconds / known, 3) for name, seconds in pace.phases.items()},
        "limit_steps_per_second": None if limit is None else round(limit, 1),  # updates back to back, nothing else
        "share_of_limit": None if limit is None else round(pace.steps_per_second / limit, 3),
        "total_env_frames": frames,
        "hours": round(frames / spec.frames_per_step / pace.steps_per_second / 3600, 2),
    }
