"""Every example script runs in its smallest form, found by glob (REQ RUN-12)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
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
