"""Policy gradients on the real emulator, from the shell's commands: train, resume, evaluate, video."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from retrograd.cli import main
from retrograd.tracking.csv import read_csv

SMALL = (
    "env=breakout",
    "run_name=tiny",
    "training.total_env_frames=1024",
    "training.num_envs=2",
    "training.log_every_steps=64",
    "training.light_eval_every_frames=null",
    "training.full_eval_every_frames=null",
    "agent.rollout_steps=32",
    "env_protocol.eval_max_episode_frames=400",
    "eval.full_episodes=2",
    "eval.num_envs=2",
    "eval.record_video=false",
    "hardware.torch_threads=1",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    [pytest.param("ppo", marks=pytest.mark.nightly), pytest.param("a2c", marks=pytest.mark.nightly), "recurrent_ppo"],
)
def test_train_resume_evaluate_video(agent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """REQ ALGO-3, ALGO-4."""
    assert main(["train", f"agent={agent}", f"output_dir={tmp_path}", *SMALL]) == 0
    folder = tmp_path / "tiny"
    rows = read_csv(folder / "update_log.csv")
    assert rows[-1]["step"] == 256
    assert rows[-1]["policy_loss"] is not None
    assert 0 < rows[-1]["entropy"] <= 1.39  # of four actions
    updates = json.loads((folder / "summary.json").read_text())["updates"]
    # four rollouts; two rows give the recurrent agent as few as two runs to make minibatches of
    assert updates in {"ppo": [64], "a2c": [4], "recurrent_ppo": range(32, 65)}[agent]
    assert main(["resume", str(folder), "training.total_env_frames=1280"]) == 0
    went_on = json.loads((folder / "summary.json").read_text())
    assert (went_on["step"], went_on["updates"] > updates) == (320, True)  # one rollout more
    capsys.readouterr()
    assert main(["evaluate", str(folder), "--episodes", "3"]) == 0
    assert len(json.loads(capsys.readouterr().out)["returns"]) == 3
    video = tmp_path / "game.mp4"
    assert main(["video", str(folder), "--output", str(video)]) == 0
    assert video.stat().st_size > 1000


def test_bad_memory_fails_before_anything_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """REQ ALGO-4: a sequence longer than the rollout, and a memory without units."""
    wrong = ("agent.sequence_steps=64", "agent.hidden_size=0")
    for setting in wrong:
        assert main(["train", "agent=recurrent_ppo", f"output_dir={tmp_path}", *SMALL, setting]) == 2
        assert setting in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
