"""Real training processes, killed with SIGKILL at random points and resumed to the end: equal to one never touched."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from retrograd.experiments.fingerprint import differences, fingerprint
from retrograd.tracking.csv import read_csv

SMALL = [
    "env=retrograd/Catch-v0", "training.num_envs=2", "training.log_every_steps=20",
    "training.light_eval_every_frames=400", "training.full_eval_every_frames=1000", "eval.light_episodes=1",
    "eval.full_episodes=2", "eval.num_envs=2", "eval.record_video=false", "hardware.torch_threads=1",
    "hardware.device=cpu", "checkpoint.every_frames=50",
]  # fmt: skip
AGENTS = {
    "dqn": [
        "replay=prioritized", "replay.capacity=700", "agent.n_step=3", "agent.batch_size=8",
        "agent.replay_start_size=100", "training.warmup_random_steps=100", "agent.target_update_freq=50",
    ],
    "ppo": ["agent.rollout_steps=16", "agent.minibatches=2", "agent.epochs=2"],
    "recurrent_ppo": ["agent.rollout_steps=16", "agent.minibatches=2", "agent.epochs=2", "agent.hidden_size=16"],
}  # fmt: skip

TWO_HUNDRED = {"dqn": 70, "ppo": 65, "recurrent_ppo": 65}


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "retrograd", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def played(folder: Path) -> int:
    """How far the run's log tells it has come."""
    try:
        lines = (folder / "train_log.csv").read_bytes().splitlines()
        return int(lines[-1].split(b",")[0]) if len(lines) > 1 else 0
    except (FileNotFoundError, ValueError):
        return 0


def kill_at(process: subprocess.Popen[bytes], folder: Path, step: int, delay_seconds: float) -> bool:
    """Whether the kill came before the end."""
    while process.poll() is None and played(folder) < step:
        time.sleep(0.002)
    time.sleep(delay_seconds)
    if process.poll() is not None:
        return False
    process.send_signal(signal.SIGKILL)
    process.wait()
    return True


def check_kills(agent: str, folder: Path, kills: int) -> str:
    frames = 150 * kills
    words = [f"agent={agent}", *SMALL, *AGENTS[agent], f"training.total_env_frames={frames}", f"output_dir={folder}"]
    reference = start("train", *words, "run_name=whole")
    chance = random.Random(kills)
    run, survived = folder / "killed", 0
    process = start("train", *words, "run_name=killed")
    for step in sorted(chance.sample(range(20, frames - 100), kills)):
        assert kill_at(process, run, step, chance.uniform(0.0, 0.05)), (process.stderr and process.stderr.read(), step)
        survived += 1
        process = start("resume", str(run))
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    _, errors = reference.communicate()
    assert reference.returncode == 0, errors.decode()
    assert differences(fingerprint(folder / "whole"), fingerprint(run)) == []
    steps = Counter(row["step"] for row in read_csv(run / "update_log.csv"))
    assert set(steps.values()) == {1}
    return f"{survived} of {kills} kills survived, all hashes equal, {len(steps)} logged steps once each"


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("agent", AGENTS)
def test_killed_twenty_times(agent: str, tmp_path: Path, record_property: Any) -> None:
    """REQ RUN-5, RUN-11"""
    record_property("figure", check_kills(agent, tmp_path, kills=20))


@pytest.mark.faults
@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("agent", "kills"), TWO_HUNDRED.items())
def test_killed_two_hundred_times(agent: str, kills: int, tmp_path: Path, record_property: Any) -> None:
    """Over the three of them, so that a night is enough on a small machine."""
    assert sum(TWO_HUNDRED.values()) == 200
    record_property("figure", check_kills(agent, tmp_path, kills=kills))
