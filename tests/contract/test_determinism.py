"""The same seed gives the same run: in fresh processes, with any number of emulator threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from retrograd import build
from retrograd.config import ConfigManager
from retrograd.experiments.fingerprint import differences, fingerprint

WORDS = [
    "env=pong", "training.total_env_frames=320", "training.num_envs=2", "training.log_every_steps=20",
    "training.warmup_random_steps=20", "training.light_eval_every_frames=null", "agent.batch_size=4",
    "agent.replay_start_size=20", "replay=prioritized", "replay.capacity=60", "eval.full_episodes=1", "eval.num_envs=1",
    "env_protocol.max_episode_frames=120", "env_protocol.eval_max_episode_frames=60", "eval.record_video=false",
    "hardware.torch_threads=1", "hardware.device=cpu", "checkpoint.every_frames=100",
]  # fmt: skip


def test_emulator_threads_change_nothing(tmp_path: Path) -> None:
    """REQ RUN-9"""
    hashes = []
    for threads in (1, 2):
        place = [f"output_dir={tmp_path}", f"run_name=threads{threads}", f"hardware.env_threads={threads}"]
        trainer = build.build_trainer(ConfigManager(None).compose([*WORDS, *place]), quiet=True)
        try:
            trainer.train()
        finally:
            trainer.close()
        hashes.append(fingerprint(trainer.folder))
    assert differences(*hashes) == []


@pytest.mark.faults
@pytest.mark.timeout(600)
def test_fresh_processes_are_equal_and_another_seed_is_not(tmp_path: Path, record_property: Any) -> None:
    """REQ RUN-9: one seed five times, with 1, 2 and 8 emulator threads and other hash seeds."""
    runs = [(1, 42), (2, 42), (8, 42), (1, 42), (2, 42), (1, 43)]
    hashes = []
    for number, (threads, seed) in enumerate(runs):
        words = [f"output_dir={tmp_path}", f"run_name=run{number}", f"hardware.env_threads={threads}", f"seed={seed}"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": str(number)}
        command = [sys.executable, "-m", "retrograd", "train", *WORDS, *words]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        hashes.append(fingerprint(tmp_path / f"run{number}"))
    for other in hashes[1:5]:
        assert differences(hashes[0], other) == []
    assert "online" in differences(hashes[0], hashes[5])
    record_property("figure", "5 of 5 runs equal with 1, 2 and 8 emulator threads; another seed differs")
