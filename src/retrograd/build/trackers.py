"""The trackers a config switches on, each a sink beside the CSV files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from retrograd.config import Config
from retrograd.core.errors import RetrogradError

if TYPE_CHECKING:
    from retrograd.core.protocols import Sink


def check_trackers(config: Config) -> None:
    """What is missing is said before anything is made: a package, a login."""
    from retrograd.tracking import mlflow, tensorboard, wandb

    if config["tensorboard"]["enabled"]:
        tensorboard.check_installed()
    if config["wandb"]["enabled"]:
        wandb.check_ready(config["wandb"]["mode"])
    if config["mlflow"]["enabled"]:
        mlflow.check_installed()


def open_trackers(config: Config, folder: Path) -> list[Sink]:
    """The sinks, ready to write; where one cannot start, those before it are closed again."""
    opened: list[Sink] = []
    try:
        for sink in _open(config, folder):
            opened.append(sink)  # noqa: PERF402 - those before a failure are wanted
    except RetrogradError:
        for sink in opened:
            sink.close()
        raise
    return opened


def _open(config: Config, folder: Path) -> Iterator[Sink]:
    values = config.to_dict()
    if config["tensorboard"]["enabled"]:
        from retrograd.tracking.tensorboard import TensorBoardSink

        keys = values["tensorboard"]
        about = {"run": "/".join(filter(None, (keys["entity"], keys["project"], keys["run_name"] or folder.name)))}
        if keys["tags"]:
            about["tags"] = ", ".join(map(str, keys["tags"]))
        yield TensorBoardSink(folder, config_yaml=config.to_yaml(), about=about)
    if config["wandb"]["enabled"]:
        from retrograd.tracking.wandb import WandbSink

        keys = values["wandb"]
        yield WandbSink(
            folder,
            project=keys["project"],
            mode=keys["mode"],
            entity=keys["entity"],
            run_name=keys["run_name"],
            tags=[str(tag) for tag in keys["tags"]],
            config=values,
        )
    if config["mlflow"]["enabled"]:
        from retrograd.tracking.mlflow import MlflowSink

        keys = values["mlflow"]
        tags = {"project": keys["project"], "entity": keys["entity"], "tags": ",".join(map(str, keys["tags"]))}
        yield MlflowSink(
            folder,
            experiment=keys["experiment"] or keys["project"],
            tracking_uri=keys["tracking_uri"],
            run_name=keys["run_name"],
            tags={name: text for name, text in tags.items() if text},
            config=values,
        )
