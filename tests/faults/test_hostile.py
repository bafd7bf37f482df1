"""Files from strangers: nothing in any of them runs, leads elsewhere or fills the memory.

Row C1 of the reliability list. Every payload is put into every place that something is loaded from, with a manifest
that agrees. A folder, the canary, would tell that code ran.
"""

from __future__ import annotations

import resource
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile import forge, payloads, traps

from retrograd.api import read_checkpoint
from retrograd.build.builder import Builder
from retrograd.config import ConfigManager
from retrograd.core.errors import CheckpointError, UsageError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.replay import NStep, RawStorage, Replay, Uniform
from retrograd.replay.saving import ReplaySaver
from retrograd.tracking.csv import read_csv
from retrograd.training.checkpoint import CheckpointStore

SPEC = EnvSpec("toy", ArraySpec((3,), np.dtype(np.float32)), DiscreteActions(2))
CONFIG = ["env=cartpole", "agent=dqn", "hardware.device=cpu", "replay.capacity=1000", "agent.replay_start_size=10"]
FILES = ["agent.pt", "rng_states.pt", "metrics.json", "config.yaml", "manifest.json", "video.mp4"]
REPLAY_FILES = ["index-*.json", "segment-*.zst", "light-*.zst"]
MEMORY_BYTES = 400 << 20


def make_checkpoint(run: Path) -> Path:
    run.mkdir(parents=True, exist_ok=True)
    clip = run / "clip.mp4"
    clip.write_bytes(b"pictures")
    network = torch.nn.Linear(2, 2)
    return CheckpointStore(run).save(
        step=2,
        env_frames=8,
        parts={"network": network},
        rng={"seed": 1},
        metrics={"mean_return": 1.0},
        config_yaml=ConfigManager(None).compose(CONFIG).to_yaml(),
        video=clip,
    )


def make_replay() -> Replay[Any]:
    return Replay(RawStorage(SPEC, 60, 2), Uniform(), NStep(1, 0.9), np.random.default_rng(0), torch.device("cpu"))


def save_replay(folder: Path) -> None:
    replay, rng = make_replay(), np.random.default_rng(1)
    obs = rng.normal(size=(21, 2, 3)).astype(np.float32)
    no, action = np.zeros(2, bool), np.zeros(2, np.int64)
    for t in range(20):
        replay.add(Step(obs[t], action, np.ones(2, np.float32), no, no, no, obs[t + 1]))
    ReplaySaver(folder).save(replay)


def attempt(load: Callable[[], Any], canary: Path) -> str:
    """Load something hostile; "refused" or "data"."""
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        load()
        outcome = "data"
    except (CheckpointError, UsageError):
        outcome = "refused"
    assert not canary.exists(), "code from the file ran"
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    assert grown < MEMORY_BYTES, f"{grown >> 20} MB for a small file"
    assert time.monotonic() - begun < 60
    return outcome


def tiers(names: list[str], quick: set[str]) -> list[Any]:
    """The same question to every file; some of them answer in make test already."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.faults) for name in names]


@pytest.mark.parametrize("name", tiers(FILES, {"agent.pt", "config.yaml"}))
def test_checkpoint_files(name: str, quick_path: Path, record_property: Any) -> None:
    canary, good = quick_path / "canary", make_checkpoint(quick_path / "good")
    outcomes = []
    for kind, data in payloads(canary).items():
        run = quick_path / "run"
        shutil.copytree(good.parent.parent, run, symlinks=True)
        folder = run / "checkpoints" / good.name
        (folder / name).write_bytes(data)
        if name != "manifest.json":
            forge(folder)
        outcome = attempt(lambda folder=folder: read_checkpoint(folder), canary)
        assert outcome == "refused" or name in ("video.mp4", "metrics.json"), kind
        outcomes.append(outcome)
        shutil.rmtree(run)
    record_property("figure", f"{len(outcomes)} payloads, 0 ran, {outcomes.count('refused')} refused")


@pytest.mark.parametrize("name", tiers(FILES, {"manifest.json", "video.mp4"}))
def test_things_that_are_no_files(name: str, quick_path: Path, record_property: Any) -> None:
    canary, good = quick_path / "canary", make_checkpoint(quick_path / "good")
    outside = quick_path / "outside"
    shutil.copy(good / name, outside)
    for kind, lay in traps(outside).items():
        run = quick_path / "run"
        shutil.copytree(good.parent.parent, run, symlinks=True)
        folder = run / "checkpoints" / good.name
        (folder / name).unlink()
        lay(folder / name)
        assert attempt(lambda folder=folder: read_checkpoint(folder), canary) == "refused", kind
        shutil.rmtree(run)
    record_property("figure", f"{len(traps(outside))} traps, all refused")


@pytest.mark.parametrize("pattern", tiers(REPLAY_FILES, {"segment-*.zst"}))
def test_replay_files(pattern: str, quick_path: Path, record_property: Any) -> None:
    canary = quick_path / "canary"
    save_replay(quick_path / "good")
    count = 0
    for kind, data in payloads(canary).items():
        folder = quick_path / "replay"
        shutil.copytree(quick_path / "good", folder)
        path = next(folder.glob(pattern))
        whole = path.read_bytes()
        for content in (data, whole[: len(whole) // 2] + data):
            path.write_bytes(content)
            agree(folder, path)
            outcome = attempt(lambda folder=folder: ReplaySaver(folder).load(make_replay()), canary)
            assert outcome == "refused", kind
            count += 1
        shutil.rmtree(folder)
    record_property("figure", f"{count} payloads, 0 ran, all refused")


def agree(folder: Path, path: Path) -> None:
    """Let the index know the size and the hash of a changed file."""
    import hashlib
    import json

    index_path = next(folder.glob("index-*.json"))
    if path == index_path:
        return
    index = json.loads(index_path.read_text())
    for entry in [*index["segments"], index["light"]]:
        if entry["file"] == path.name:
            entry["bytes"] = path.stat().st_size
            if "sha256" in entry:
                entry["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    index_path.write_text(json.dumps(index))


def test_index_that_names_files_elsewhere(quick_path: Path) -> None:
    import json

    save_replay(quick_path / "replay")
    path = next((quick_path / "replay").glob("index-*.json"))
    index = json.loads(path.read_text())
    segment = quick_path / "replay" / index["segments"][0]["file"]
    shutil.copy(segment, quick_path / "stolen.zst")
    index["segments"][0]["file"] = "../stolen.zst"
    path.write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="stolen"):
        ReplaySaver(quick_path / "replay").load(make_replay())


def test_agent_files_configs_and_logs(quick_path: Path, record_property: Any) -> None:
    """What ``Agent.load``, ``--config`` and the plots read."""
    canary, path = quick_path / "canary", quick_path / "file"
    agent = Builder(ConfigManager(None).compose(CONFIG)).agent(SPEC)
    readers: dict[str, Callable[[], Any]] = {
        "agent": lambda: agent.load(path),
        "config": lambda: ConfigManager(None).compose([], str(path)),
        "log": lambda: read_csv(path),
    }
    count = 0
    for kind, data in payloads(canary).items():
        path.write_bytes(data)
        for name, read in readers.items():
            outcome = attempt(read, canary)
            assert outcome == "refused" or name == "log" or (kind, name) == ("empty", "config"), (kind, name)
            count += 1
    record_property("figure", f"{count} payloads, 0 ran")
