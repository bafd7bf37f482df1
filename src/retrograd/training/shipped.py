"""Agents that come with the package: bundles in ``pretrained/``, called by name, as in ``retrograd watch breakout``."""

from __future__ import annotations

from pathlib import Path

from retrograd.core.errors import UsageError, suggest

FOLDER = Path(__file__).resolve().parents[1] / "pretrained"


def shipped_agents() -> dict[str, Path]:
    return {path.parent.name: path.parent for path in sorted(FOLDER.glob("*/manifest.json"))}


def find_agent(path: str | Path) -> Path:
    """What is there is meant as it stands; a word alone, where nothing of that name is, means a shipped agent."""
    path = Path(path)
    if path.exists() or path.is_symlink() or len(path.parts) != 1:
        return path
    shipped = shipped_agents()
    if path.name in shipped:
        return shipped[path.name]
    raise UsageError(
        f"there is no run, checkpoint or exported agent {path}, and no agent of that name comes with the package; "
        f"those that do are {', '.join(shipped)}.{suggest(path.name, shipped)}"
    )
