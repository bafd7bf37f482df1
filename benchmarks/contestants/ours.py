"""Retrograd, with the settings that its peers are given beside it, and the limit: updates with nothing round them."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stopwatch import Stopwatch, arguments

from retrograd.build import build_trainer
from retrograd.config import ConfigManager
from retrograd.tracking.csv import read_csv

OFF_POLICY = ["replay.capacity=100000", "training.warmup_random_steps=1000", "agent.update_frequency=4"]
EXPLORING = ["preset.epsilon_start=0.1", "preset.epsilon_end=0.1"]  # early in a decay nobody would ask the network
PPO = ["agent.minibatches=4", "agent.epochs=4", "agent.rollout_steps=128", "training.num_envs=8"]
SETTINGS: dict[str, list[str]] = {
    "dqn": ["preset=modern", "preset.lr=1e-4", "agent.max_grad_norm=10", *OFF_POLICY, *EXPLORING],
    "qr_dqn": ["agent=qr_dqn", *OFF_POLICY, *EXPLORING],
    "rainbow": ["agent=rainbow", *OFF_POLICY],
    "ppo": ["agent=ppo", *PPO],
    "recurrent_ppo": ["agent=recurrent_ppo", "agent.hidden_size=256", "agent.frame_stack=4", *PPO],
    "a2c": ["agent=a2c"],
    "null": ["training.null_learner=true", "training.num_envs=8", *OFF_POLICY],
    "null_ppo": ["agent=ppo", "training.null_learner=true", *PPO],
}


def make(algorithm: str, folder: str, overrides: Sequence[str] = ()) -> Any:
    quiet = ["training.light_eval_every_frames=null", "training.full_eval_every_frames=null"]
    config = ConfigManager(None).compose(["env=pong", *SETTINGS[algorithm], *quiet, *overrides, f"output_dir={folder}"])
    return build_trainer(config, quiet=True)


def play(algorithm: str, watch: Stopwatch) -> None:
    """The whole framework as a user runs it: logs, progress, gates and all."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(algorithm, folder, watch.overrides)
        while watch.tell(trainer.run.step):
            trainer.advance()
        trainer.close()
        watch.notes |= shares(trainer.folder, watch)


def shares(folder: Path, watch: Stopwatch) -> dict[str, float]:
    """Of the time under the clock, by the phases of the update log."""
    rows = [row for row in read_csv(folder / "update_log.csv") if row["step"] > watch.warmup]
    names = ("emulate", "act", "sample", "update")
    seconds = {name: sum(row.get(f"{name}_seconds") or 0.0 for row in rows[1:]) for name in names}
    whole = rows[-1]["wall_seconds"] - rows[0]["wall_seconds"] if rows else 0.0
    return {f"{name}_share": part / whole for name, part in seconds.items()} if whole else {}


def first_batches(trainer: Any) -> list[tuple[Any, int]]:
    """The last two batches, with their steps, when a run has begun to learn."""
    seen: list[tuple[Any, int]] = []
    update = trainer.agent.update

    def remember(batch: Any, *, step: int) -> Any:
        seen.append((batch, step))
        return update(batch, step=step)

    trainer.agent.update = remember
    while len(seen) < 2:
        trainer.advance()
    trainer.agent.update = update
    return seen[-2:]


def limit(algorithm: str, watch: Stopwatch) -> None:
    """The same updates back to back on the batches a run has just learned from; nothing is played or remembered."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = make(algorithm, folder, watch.overrides)
        (_, first), (batch, step) = first_batches(trainer)
        trainer.close()
    update = trainer.agent.update
    steps_per_update = step - first if step > first else 4  # off-policy updates of one vector step come together
    if algorithm in ("dqn", "qr_dqn", "rainbow"):
        steps_per_update = 4
    deadline, done = time.monotonic() + 2, 0
    while time.monotonic() < deadline:
        update(batch, step=step)
    steps = watch.warmup
    while watch.tell(steps):
        update(batch, step=step)
        done += 1
        steps = watch.warmup + done * steps_per_update


def emulate(watch: Stopwatch) -> None:
    """The emulator's own vector environment, as ale-py ships it, with random actions."""
    import numpy as np
    from ale_py.vector_env import AtariVectorEnv

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    envs = AtariVectorEnv("pong", num_envs=8, use_fire_reset=True, reward_clipping=True, num_threads=threads)
    envs.reset(seed=0)
    rng, step = np.random.default_rng(0), 0
    while watch.tell(step):
        envs.step(rng.integers(envs.single_action_space.n, size=8))
        step += 8
    envs.close()


if __name__ == "__main__":
    name, stopwatch = arguments(
        [*SETTINGS, *(f"limit_{word}" for word in ("dqn", "rainbow", "ppo")), "emulator"], overridable=True
    )
    if name == "emulator":
        emulate(stopwatch)
    elif name.startswith("limit_"):
        limit(name.removeprefix("limit_"), stopwatch)
    else:
        play(name, stopwatch)
    stopwatch.report()
    sys.stdout.flush()
