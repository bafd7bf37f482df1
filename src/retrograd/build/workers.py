"""What A3C and IMPALA have in common: builders inside worker processes, and what cannot travel there."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

from retrograd.config import from_saved
from retrograd.core.errors import UsageError

if TYPE_CHECKING:
    from retrograd.build.builder import Builder
    from retrograd.training.run import Run


def worker_config(builder: Builder, run: Run) -> str:
    """The config for workers that begin now: with the budget as it is now, which their schedules follow, and in a run
    that goes on with another seed, or they would play their first games again."""
    changes: dict[str, Any] = {"training.total_env_frames": run.plan.total_steps * run.plan.frames_per_step}
    if run.step:
        changes["seed"] = builder.streams.integer(f"workers from step {run.step}")
    return builder.config.with_values(changes).to_yaml()


def worker_builder(config_yaml: str, env: Any, number: int) -> Builder:
    """The run's builder with a seed of its own for each worker."""
    from retrograd.build.builder import Builder

    config = from_saved(yaml.safe_load(config_yaml))
    seed = Builder(config).streams.integer(f"worker {number}")
    return Builder(config.with_values({"seed": seed}), env=env)


def slots_per_worker(agent: Mapping[str, Any]) -> int:
    """What a worker of IMPALA owes to an update, and one slot more to play on meanwhile."""
    return max(2, -(-int(agent["rollouts_per_update"]) // int(agent["workers"])) + 1)


def check_normalizers(builder: Builder) -> None:
    if builder.normalizers:
        name = builder.config["agent"]["name"]
        raise UsageError(f"agent={name} cannot normalize: each worker would have statistics of its own")


def check_env(builder: Builder) -> None:
    """Workers are new processes: what they play has to travel."""
    try:
        pickle.dumps(builder.env)
    except Exception as error:  # whatever an object's own pickling may raise
        raise UsageError(
            f"agent={builder.config['agent']['name']} sends the environment to its workers, and {builder.env!r} "
            f"cannot be sent ({error}); hand in a name or a function of a module"
        ) from error
