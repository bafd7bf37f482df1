"""What exactly ran: code, packages, machine and command line."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil
import torch

from retrograd.training import durable

DIFF_LIMIT_CHARACTERS = 1_000_000
GIT_TIMEOUT_SECONDS = 20


def collect_versions(command_line: Sequence[str], *, device: str | None = None) -> dict[str, Any]:
    """Everything needed to know what a run was made with; works without git, too.

    The home folder appears as ``~`` and the machine's name not at all: run folders get shared.
    """
    return {
        "command_line": [hide_home(word) for word in command_line],
        "retrograd": _version("retrograd"),
        "git": _describe_code(),
        "packages": package_versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "device": device or ("cuda" if torch.cuda.is_available() else "cpu"),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
    }


def write_versions(folder: Path, versions: dict[str, Any]) -> None:
    """``versions.json``, and ``code.diff`` where the code differed from its commit."""
    git = dict(versions["git"])
    diff = git.pop("diff")
    durable.write_json(folder / "versions.json", {**versions, "git": git})
    if diff:
        durable.write_text(folder / "code.diff", diff)


@cache
def package_versions() -> Mapping[str, str]:
    """The installed versions of what we depend on, optional parts included; looked up once, every save asks."""
    try:
        requirements = metadata.requires("retrograd") or []
    except metadata.PackageNotFoundError:  # run from a source tree that was never installed
        requirements = ["torch", "numpy", "gymnasium", "ale-py"]
    names = {match[0] for entry in requirements if (match := re.match(r"[\w.-]+", entry))} - {"retrograd"}
    found = {name: _version(name) for name in sorted(names)}
    return {name: version for name, version in found.items() if version is not None}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _describe_code() -> dict[str, Any]:
    """Commit and local changes of our own checkout, or else of the project the run was started in."""
    package = Path(__file__).resolve().parents[1]
    # an installed copy may lie inside somebody's repository without being part of it
    ours = _git(package, "ls-files", "--error-unmatch", "__init__.py") is not None
    folder = package if ours else Path.cwd()
    status = _git(folder, "status", "--porcelain")
    if status is None:
        return {"of": None, "commit": None, "dirty": None, "diff": ""}
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    diff = _git(folder, "diff", "--no-color", "--no-ext-diff", "HEAD") or ""
    if len(diff) > DIFF_LIMIT_CHARACTERS:
        diff = f"{diff[:DIFF_LIMIT_CHARACTERS]}\n[cut here: the whole diff has {len(diff)} characters]\n"
    return {
        "of": "retrograd" if ours else "working folder",
        "commit": commit.strip() if commit else None,
        "dirty": bool(status.strip()),
        "diff": diff,
    }


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says, or None if it is missing, slow, or has nothing to say here."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            timeout=GIT_TIMEOUT_SECONDS,
            check=True,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},  # looking must not block somebody's commit
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.decode(errors="replace")


def hide_home(word: str) -> str:
    """The word with ``~`` for the home folder."""
    home = str(Path.home())
    return word if home == os.sep else re.sub(rf"{re.escape(home)}(?=$|{re.escape(os.sep)})", "~", word)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())
