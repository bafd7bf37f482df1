"""Peak memory of a run, predicted and measured, with the replay filled to the brim.

    python benchmarks/memory.py                          the default run: Pong, one million transitions
    python benchmarks/memory.py replay.capacity=100000

A real trainer is built; its replay is filled with made-up steps, which takes a minute instead of hours of play; then it
trains and evaluates as usual.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile

import numpy as np

from retrograd.build import build_trainer, memory_needed
from retrograd.config import ConfigManager
from retrograd.core.types import Step


def fill(replay: object, num_envs: int, shape: tuple[int, ...], capacity: int) -> None:
    rng = np.random.default_rng(0)
    obs = rng.integers(256, size=(num_envs, *shape), dtype=np.uint8)
    never = np.zeros(num_envs, bool)
    for _ in range(capacity // num_envs + shape[0]):
        next_obs = np.concatenate([obs[:, 1:], obs[:, :1]], axis=1)
        action = rng.integers(6, size=num_envs)
        replay.add(Step(obs, action, np.zeros(num_envs, np.float32), never, never, never, next_obs))
        obs = next_obs


def main(overrides: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        short = ["training.total_env_frames=8000", "training.warmup_random_steps=0", "eval.full_episodes=8"]
        config = ConfigManager(None).compose([*short, *overrides, f"output_dir={folder}"])
        trainer = build_trainer(config)
        replay = trainer.loop.replay
        fill(replay, trainer.envs.num_envs, trainer.envs.spec.obs.shape, config["replay"]["capacity"])
        trainer.train()
        trainer.close()
    predicted = memory_needed(config)
    measured = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"predicted_gb": predicted / 1e9, "measured_gb": measured / 1e9, "ratio": predicted / measured}))


if __name__ == "__main__":
    main(sys.argv[1:])
