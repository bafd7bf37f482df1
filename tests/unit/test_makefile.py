"""`make` hands every override to the command as it was typed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], [n for n in os.environ if n in ('seed', 'env')]]))"

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make on this machine")


def passed_on(tmp_path: Path, *words: str) -> tuple[list[str], list[str]]:
    """What the command got, and which overrides leaked into its environment."""
    stand_in = tmp_path / "retrograd"
    stand_in.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{SHOW}" "$@"\n')
    stand_in.chmod(0o755)
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True, exist_ok=True)
    (venv / ".installed").touch()
    os.utime(venv / ".installed", (2**31, 2**31))  # newer than anything the installation depends on
    command = ["make", "-s", "-C", str(ROOT), f"VENV={venv}", f"RETROGRAD={stand_in}", *words]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=clean, timeout=60)
    arguments, leaked = json.loads(done.stdout.splitlines()[-1])
    return arguments, leaked


@pytest.mark.parametrize(
    "words",
    [
        ["env=breakout", "preset.lr=0.001", "seed=3"],
        ["training.total_env_frames=200000", "training.warmup_random_steps=10000", "eval.full_episodes=5"],
        ["wandb.tags=[a, b]", "run_name=it's", "env.name='two words'"],
        ["output_dir=a$b", "run_name=back\\slash", "eval.epsilon=0.05"],
    ],
)
def test_overrides_arrive_in_order_and_unharmed(tmp_path, words):
    assert passed_on(tmp_path, "train", *words) == (["train", *words], [])


def test_extras_arrive_too(tmp_path):
    words = ["+checkpoint_path=outputs/x/checkpoints/best", "+output_video=play.mp4"]
    assert passed_on(tmp_path, "video", *words)[0] == ["video", *words]
    words = ["+checkpoint_path=outputs/x", "training.total_env_frames=100"]
    assert passed_on(tmp_path, "resume", *words)[0] == ["resume", *words]


def test_lists_ranges_and_options_of_a_sweep_arrive(tmp_path):
    words = ["agent=dqn,ppo", "preset.lr=log(1e-5,1e-2)", "seed=0,1", "+search=bayes", "+trials=3"]
    assert passed_on(tmp_path, "sweep", *words)[0] == ["sweep", *words]
