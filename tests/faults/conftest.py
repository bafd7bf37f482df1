"""What the fault tests share besides ``injection``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def quick_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: thousands of syncs are part of these tests, waiting for a disk is not."""
    if not os.access("/dev/shm", os.W_OK):  # noqa: S108
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="retrograd-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
