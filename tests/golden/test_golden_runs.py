"""Golden hashes: the weights and optimizer of every agent after a short run, to the bit.

A change that alters one is a change of learning: explain it in CHANGELOG.md under "Changes learning" and write the file
anew with ``python tests/golden/test_golden_runs.py``. Last digits depend on the processor and on torch, so hashes are
compared only where both are those they were made with.
"""

from __future__ import annotations

import json
import platform
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from retrograd import build
from retrograd.config import SHIPPED, ConfigManager
from retrograd.experiments.fingerprint import fingerprint

GOLDEN = Path(__file__).with_name("runs.json")
# one of each way to learn; other agent files are combinations of these
AGENTS = ("dqn", "c51", "qr_dqn", "iqn", "munchausen", "rainbow", "pqn", "ppo", "a2c", "recurrent_ppo")
PARTS = ("online", "target", "optimizer", "network", "learner", "counters")
SMALL = [
    "env=retrograd/Catch-v0", "training.num_envs=2", "training.total_env_frames=208", "eval.full_episodes=1",
    "eval.num_envs=1", "eval.record_video=false", "training.light_eval_every_frames=null", "hardware.torch_threads=1",
    "hardware.device=cpu", "checkpoint.every_frames=null", "checkpoint.replay=false",
]  # fmt: skip
VALUE = [
    "agent.batch_size=8", "agent.update_frequency=2", "agent.replay_start_size=20", "replay.capacity=100",
    "training.warmup_random_steps=20", "agent.target_update_freq=20",
]  # fmt: skip
ROLLOUTS = ["agent.rollout_steps=8"]
EPOCHS = [*ROLLOUTS, "agent.minibatches=2", "agent.epochs=2"]


def machine() -> dict[str, str]:
    return {
        "torch": torch.__version__,
        "processor": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
    }


def run_hashes(agent: str, folder: Path) -> dict[str, str]:
    manager = ConfigManager(user_folder=None)
    kind = manager.compose([f"agent={agent}"])["agent"]["kind"]
    words = {"value": VALUE, "a2c": ROLLOUTS}.get(kind, EPOCHS)
    config = manager.compose([f"agent={agent}", *SMALL, *words, f"output_dir={folder}", f"run_name={agent}"])
    trainer = build.build_trainer(config, quiet=True)
    try:
        summary = trainer.train()
    finally:
        trainer.close()
    assert summary["updates"] >= 13
    return {name: digest for name, digest in fingerprint(trainer.folder).items() if name in PARTS}


@pytest.mark.parametrize("agent", AGENTS)
def test_weights_and_optimizer_are_those_of_the_record(agent: str, tmp_path: Path) -> None:
    """REQ RUN-9"""
    recorded: dict[str, Any] = json.loads(GOLDEN.read_text())
    if recorded["machine"] != machine():
        pytest.skip(f"the hashes were made with {recorded['machine']}, this is {machine()}")
    assert run_hashes(agent, tmp_path) == recorded["hashes"][agent]


def test_every_recorded_agent_exists() -> None:
    assert set(AGENTS) <= {path.stem for path in SHIPPED.glob("agent/*.yaml")}
    assert set(json.loads(GOLDEN.read_text())["hashes"]) == set(AGENTS)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        hashes = {agent: run_hashes(agent, Path(folder)) for agent in AGENTS}
    GOLDEN.write_text(json.dumps({"machine": machine(), "hashes": hashes}, indent=1) + "\n")
