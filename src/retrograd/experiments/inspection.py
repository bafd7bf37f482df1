"""Looking at a run before it starts, through the command that would start it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence

import yaml

from retrograd.core.errors import UsageError
from retrograd.experiments.budget import Inspection, Inspector

TIMEOUT_SECONDS = 120


def show_config(command: Sequence[str]) -> Inspector:
    """Ask ``<command> train --show-config`` for the resolved config and the memory of a run."""

    def inspect(overrides: Sequence[str]) -> Inspection:
        words = [*command, "train", *overrides, "--show-config"]
        answer = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False)
        if answer.returncode:
            lines = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
            raise UsageError("\n".join(lines).removeprefix("retrograd: "))
        memory = re.search(r"^# memory: (\d+) bytes$", answer.stdout, re.MULTILINE)
        return Inspection(yaml.safe_load(answer.stdout), int(memory[1]) if memory else 0)

    return inspect
