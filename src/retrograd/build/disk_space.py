"""The disk a run will need, known before its folder is made."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from retrograd.build.memory import FIXED_BYTES, memory_needed
from retrograd.config import Config
from retrograd.core.errors import UsageError

SAFETY = 1.1
MOMENTS = 3  # an optimizer that has not begun holds nothing yet; Adam will hold two numbers a weight
# of the replay's memory: what zstandard leaves of frames in time order is far less, one is not to count on it
REPLAY_SHARE = 0.1


def check_disk_of(config: Config, folder: Path, parts: Mapping[str, Any]) -> None:
    """Refuse a run of this config whose checkpoints, and replay where it is saved, would fill the disk."""
    replay_bytes = memory_needed(config) - FIXED_BYTES if saves_replay(config) else 0
    check_disk(folder, parts=parts, checkpoints=checkpoints_kept(config), replay_bytes=replay_bytes)


def saves_replay(config: Config) -> bool:
    """Whether there is a replay that lies beside the checkpoints."""
    return config["agent"]["kind"] == "value" and bool(config["checkpoint"]["replay"])


def check_disk(folder: Path, *, parts: Mapping[str, Any], checkpoints: int, replay_bytes: int) -> None:
    """Refuse a run whose checkpoints would fill the disk: ``checkpoints`` of ``parts`` and one replay beside them.

    What lies in the run's ``folder`` already, if it goes on, needs no room any more.
    """
    one = MOMENTS * sum(_bytes(part.state_dict()) for part in parts.values())
    present = _size(folder / "checkpoints") + _size(folder / "replay")
    needed = int(SAFETY * (one * checkpoints + replay_bytes * REPLAY_SHARE)) - present
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise UsageError(
            f"{place} has {free / 1e9:.2f} GB free and the run needs {needed / 1e9:.2f} GB{' more' * bool(present)}: "
            f"{checkpoints} checkpoints of {one / 1e9:.3f} GB and {replay_bytes * REPLAY_SHARE / 1e9:.2f} GB for its "
            f"replay; {'make room' if present else 'choose another output_dir'}, or lower checkpoint.keep_last, or "
            "raise checkpoint.keep_every_frames, or set checkpoint.replay=false"
        )


def checkpoints_kept(config: Config) -> int:
    """How many there may be at once: the last ones, the best, the one being written, and those that stay for good."""
    checkpoint, training = config["checkpoint"], config["training"]
    frames, every = training["total_env_frames"], checkpoint["keep_every_frames"]
    staying = 0 if every is None else frames // every
    if training["checkpoint_every_episodes"] is None and training["eval_every_episodes"] is None:
        cadences = (checkpoint["every_frames"], training["full_eval_every_frames"])
        staying = min(staying, sum(frames // cadence for cadence in cadences if cadence is not None))
    kept: int = checkpoint["keep_last"] + 2 + staying
    return kept


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def _bytes(state: Any) -> int:
    if isinstance(state, Mapping):
        return sum(_bytes(value) for value in state.values())
    if isinstance(state, list | tuple):
        return sum(_bytes(value) for value in state)
    return int(getattr(state, "nbytes", 8))
