"""``retrograd train``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from retrograd.cli.words import add_command, run_to_the_end


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "train",
        "train an agent; the run goes to outputs/<run_name>",
        "retrograd train",
        "retrograd train env=breakout agent.double=true seed=3",
        "retrograd train env=ms_pacman training.total_env_frames=2000000 replay.capacity=100000",
        "retrograd train agent=ppo env=CartPole-v1 agent.network=separate agent.eval_policy=greedy preset.lr=0.001 \\",
        "    agent.clip_range=0.2 agent.value_clip=false agent.entropy_coef=0 agent.epochs=6 \\",
        "    training.total_env_frames=100000",
        "retrograd train --config mine.yaml --show-config",
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="config groups and keys, e.g. env=breakout preset.lr=0.001"
    )
    parser.add_argument("--config", metavar="FILE", help="a YAML file with keys, read before the overrides")
    parser.add_argument(
        "--show-config", action="store_true", help="print the resolved config, the protocol and the memory, and stop"
    )
    parser.set_defaults(run=_train)


def _train(options: argparse.Namespace) -> int:
    from retrograd.config import ConfigManager

    config = ConfigManager().compose(options.overrides, options.config)
    for note in config.notes:
        print(f"retrograd: {note}", file=sys.stderr)
    from retrograd.build import build_trainer, check_memory, describe_protocol, memory_needed, run_folder

    if options.show_config:
        print(config.to_yaml(), end="")
        print(f"# protocol: {describe_protocol(config)}\n# memory: {memory_needed(config)} bytes")
        return 0
    run_folder(config)  # refused before torch is loaded, if it is taken
    check_memory(config)
    trainer = build_trainer(config, command_line=["retrograd", *sys.argv[1:]])
    print(f"run folder: {trainer.folder}\nprotocol: {describe_protocol(config)}", file=sys.stderr)
    return run_to_the_end(trainer)
