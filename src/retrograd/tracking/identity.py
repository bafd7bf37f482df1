"""Which tracker's run belongs to a run folder: kept in the folder, so that a resumed run goes on in the same one."""

from __future__ import annotations

import json
from pathlib import Path

from retrograd.core import disk

FILE = "trackers.json"


def recall(folder: Path, tracker: str) -> str | None:
    """The id this folder's run has in ``tracker``, or None if it has none yet."""
    return _read(folder).get(tracker)


def remember(folder: Path, tracker: str, run_id: str) -> None:
    """Write the id down; the file is whole at any moment."""
    temporary = folder / f".tmp-{FILE}"
    disk.remove_file(temporary)
    with disk.system.create(temporary) as file:
        file.write(json.dumps(_read(folder) | {tracker: run_id}, indent=2).encode() + b"\n")
        disk.system.sync(file)
    disk.system.replace(temporary, folder / FILE)
    disk.sync_folder(folder)


def _read(folder: Path) -> dict[str, str]:
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # no file, or one that nobody can read: the tracker gets a new run
        return {}
    if not isinstance(content, dict):
        return {}
    return {str(name): run_id for name, run_id in content.items() if isinstance(run_id, str)}
