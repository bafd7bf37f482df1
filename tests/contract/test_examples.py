"""Every example script runs in its smallest form, found by glob (REQ RUN-12)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NIGHTLY = ("rainbow",)  # goes DQN's way, with more of it
EXAMPLES = [
    pytest.param(path, id=path.stem, marks=[pytest.mark.nightly] if path.stem in NIGHTLY else [])
    for path in sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
]


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, str(script), "--smoke", "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr
    assert "mean" in finished.stdout
    assert len(list(tmp_path.glob("*/checkpoints/catalog.json"))) == 1
