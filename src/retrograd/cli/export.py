"""``retrograd export``: a trained agent as a folder to give away."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from retrograd.cli.targets import check_target
from retrograd.cli.words import add_command


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "export",
        "write a trained agent, its config and a card into a folder to give away",
        "retrograd export outputs/my_run",
        "retrograd export outputs/my_run/checkpoints/latest --output pong_ppo --fp16",
        "retrograd evaluate pong_ppo",
    )
    parser.add_argument("agent", metavar="RUN", help="a run folder (its best checkpoint) or a checkpoint folder")
    parser.add_argument("--output", metavar="DIR", help="the new folder (default: <agent>-<game>)")
    parser.add_argument("--fp16", action="store_true", help="weights as 16-bit floats: half the size, fewer digits")
    parser.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> int:
    from retrograd.api import read_checkpoint
    from retrograd.build import describe_protocol
    from retrograd.experiments.card import make_card
    from retrograd.training.bundle import write_bundle

    checkpoint, config = read_checkpoint(options.agent)
    game = config["env"]["game_id"].replace("/", "-")
    target = Path(options.output or f"{config['agent']['name']}-{game}")
    check_target(target, "folder")
    # where it was trained and who watched is nobody's business
    private: dict[str, Any] = {"output_dir": "outputs", "run_name": None}
    for tracker in ("wandb", "mlflow", "tensorboard"):
        private |= {f"{tracker}.enabled": False, f"{tracker}.entity": None, f"{tracker}.run_name": None}
    # and whoever plays it computes in bfloat16 only on a processor that does
    elsewhere = {"hardware.autocast": "native"} if config["hardware"]["autocast"] == "bfloat16" else {}
    shared = config.with_values({**private, **elsewhere, "mlflow.tracking_uri": None})
    card = make_card(
        shared.values,
        checkpoint.metrics,
        step=checkpoint.step,
        env_frames=checkpoint.env_frames,
        protocol=describe_protocol(shared),
        name=target.name,
        video=(checkpoint.path / "video.mp4").is_file(),
    )
    folder = write_bundle(checkpoint, target, config_yaml=shared.to_yaml(), card=card, half=options.fp16)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(json.dumps({"bundle": str(folder), "step": checkpoint.step, "bytes": size, "fp16": options.fp16}))
    return 0
