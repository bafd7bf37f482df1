"""What a start that finds the folder taken says about who has it."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from retrograd.core.errors import InUseError, UsageError
from retrograd.training import lock
from retrograd.training.lock import RunLock


@pytest.fixture
def killed() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def name(pid: int) -> str:
    return json.dumps({"pid": pid, "host": platform.node()})


def test_a_holder_that_has_not_written_its_name_yet_is_waited_for(tmp_path: Path, killed: int) -> None:
    """REQ RUN-9. Between taking the lock and writing the name the file tells of the one before."""
    with (tmp_path / ".lock").open("w") as file:
        file.write(name(killed))
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)

        def write_late() -> None:
            time.sleep(0.1)
            (tmp_path / ".lock").write_text(name(os.getpid()))

        late = threading.Thread(target=write_late)
        late.start()
        with pytest.raises(InUseError, match=f"in use by process {os.getpid()} on"):
            RunLock(tmp_path)
        late.join()


def test_a_dead_process_is_never_named(tmp_path: Path, killed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "NAMING_SECONDS", 0.05)
    with (tmp_path / ".lock").open("w") as file:
        file.write(name(killed))
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InUseError, match="in use by another process"):
            RunLock(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / ".lock").mkdir()
    with pytest.raises(UsageError, match=f"the run folder {tmp_path} cannot be locked: Is a directory"):
        RunLock(tmp_path)
