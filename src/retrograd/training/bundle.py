"""Bundles: a trained agent to give away, in the layout of a checkpoint, without what only training needs.

``agent.pt`` holds the playing parts alone; ``README.md`` is the card, ``video.mp4`` a game. Nothing in it can run.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch

from retrograd.core import disk
from retrograd.core.errors import UsageError
from retrograd.training import durable
from retrograd.training.checkpoint import Checkpoint
from retrograd.training.manifest import describe_files, read_manifest, seal
from retrograd.training.plain import FORMAT, copy_plain, save_bytes, save_tensors

PLAYING_PARTS = ("online", "network", "normalizers")
HALF_PARTS = ("online", "network")  # statistics keep their digits


def write_bundle(checkpoint: Checkpoint, folder: Path, *, config_yaml: str, card: str, half: bool = False) -> Path:
    """Make ``folder`` in one piece; a name that is taken is refused."""
    if os.path.lexists(folder):
        raise UsageError(f"{folder} exists already; choose another --output or remove it")
    manifest = read_manifest(checkpoint.path)
    disk.make_folders(folder.absolute().parent)
    temporary = folder.with_name(f".tmp-{folder.name}-{os.getpid()}")
    try:
        disk.system.mkdir(temporary)
        parts = {name: state for name, state in checkpoint.parts.items() if name in PLAYING_PARTS}
        parts = copy_plain(parts, "agent.pt")
        if half:
            parts |= {name: _halve(parts[name], {}) for name in HALF_PARTS if name in parts}
        agent = {"format": FORMAT, "step": checkpoint.step, "env_frames": checkpoint.env_frames, "parts": parts}
        save_tensors(temporary / "agent.pt", agent)
        save_tensors(temporary / "rng_states.pt", {"format": FORMAT, "rng": {}})
        save_bytes(temporary / "metrics.json", durable.encode_json(checkpoint.metrics))
        save_bytes(temporary / "config.yaml", config_yaml.encode())
        video = checkpoint.path / "video.mp4"
        if video.is_file():
            with open(video, "rb") as source, durable.create_file(temporary / "video.mp4") as copy:
                shutil.copyfileobj(source, copy, 1 << 20)
        described = {**manifest, "serial": 1, "files": describe_files(temporary), "replay": None}
        save_bytes(temporary / "manifest.json", durable.encode_json(seal(described)))
        save_bytes(temporary / "README.md", card.encode())  # not in the manifest: a card may be edited
        durable.publish_folder(temporary, folder)
    except BaseException:
        durable.remove_folder(temporary)
        raise
    return folder


def _halve(state: Any, halves: dict[int, torch.Tensor]) -> Any:
    """Weights as 16-bit floats, those with two names still once; what is no weight stays as it is."""
    if isinstance(state, torch.Tensor) and state.dtype == torch.float32:
        return halves.setdefault(id(state), state.half())
    if isinstance(state, dict):
        return {name: _halve(value, halves) for name, value in state.items()}
    return state
