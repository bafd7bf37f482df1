"""The example scripts of policy gradients do what they say, in their smallest form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", ["ppo", "recurrent_ppo"])
def test_example_runs(name: str, tmp_path: Path) -> None:
    """REQ RUN-12."""
    finished = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py"), "--smoke", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr
    assert "mean return of 2 games" in finished.stdout
    assert len(list(tmp_path.glob("*/checkpoints/catalog.json"))) == 1
