"""The disk a run will need, known before its folder is made."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retrograd.core.errors import UsageError

SAFETY = 1.1
MOMENTS = 3  # an optimizer that has not begun holds nothing yet; Adam will hold two numbers a weight
# of the replay's memory: what zstandard leaves of frames in time order is far less, one is not to count on it
REPLAY_SHARE = 0.1


def check_disk(folder: Path, *, parts: Mapping[str, Any], checkpoints: int, replay_bytes: int) -> None:
    """Refuse a run whose checkpoints would fill the disk: ``checkpoints`` of ``parts`` and one replay beside them."""
    one = MOMENTS * sum(_bytes(part.state_dict()) for part in parts.values())
    needed = int(SAFETY * (one * checkpoints + replay_bytes * REPLAY_SHARE))
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise UsageError(
            f"{place} has {free / 1e9:.2f} GB free and the run needs {needed / 1e9:.2f} GB: {checkpoints} checkpoints "
            f"of {one / 1e9:.3f} GB and {replay_bytes * REPLAY_SHARE / 1e9:.2f} GB for its replay; choose another "
            "output_dir, or lower checkpoint.keep_last, or set checkpoint.replay=false"
        )


def _bytes(state: Any) -> int:
    if isinstance(state, Mapping):
        return sum(_bytes(value) for value in state.values())
    if isinstance(state, list | tuple):
        return sum(_bytes(value) for value in state)
    return int(getattr(state, "nbytes", 8))
