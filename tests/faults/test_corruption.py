"""Damaged checkpoints: every cut, every flipped bit, every missing file is found, named, and costs one checkpoint.

REQ RUN-5; rows A5 and C3 of the reliability list.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from retrograd.core.errors import CheckpointError
from retrograd.training.checkpoint import CheckpointStore, load, load_newest

FILES = ["agent.pt", "rng_states.pt", "metrics.json", "config.yaml", "video.mp4", "manifest.json"]


def save(run: Path, step: int) -> Path:
    clip = run / "clip.mp4"
    clip.write_bytes(bytes(range(256)))
    torch.manual_seed(step)
    network = torch.nn.Linear(4, 3)
    return CheckpointStore(run).save(
        step=step,
        env_frames=4 * step,
        parts={"network": network, "optimizer": torch.optim.Adam(network.parameters())},
        rng={"seed": step, "state": list(range(8))},
        metrics={"mean_return": 1.5},
        config_yaml="seed: 3\nagent:\n  name: dqn\n",
        video=clip,
    )


@pytest.fixture
def newest(quick_path: Path) -> Path:
    """The newer one of two checkpoints in ``quick_path``."""
    save(quick_path, 1)
    return save(quick_path, 2)


def is_found(run: Path, damaged: Path, caplog: pytest.LogCaptureFixture) -> bool:
    """Whether the damage is told with the file's name, and the checkpoint before is used instead."""
    folder = damaged.parent
    try:
        load(folder)
    except CheckpointError as error:
        named = damaged.name in str(error)
    else:
        return False
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        used = load_newest(run).step
    return named and used == 1 and damaged.name in caplog.text


def cut(data: bytes, cases: int) -> list[bytes]:
    lengths = np.unique(np.linspace(0, len(data) - 1, cases).astype(int))
    # without its last line break JSON is still the same JSON
    return [data[:length] for length in lengths if data[:length].strip() != data.strip()]


def flip(data: bytes, cases: int) -> list[bytes]:
    rng = np.random.default_rng(len(data))
    places = rng.integers(0, (len(data), 8), (cases, 2))
    return [data[:byte] + bytes([data[byte] ^ (1 << bit)]) + data[byte + 1 :] for byte, bit in places.tolist()]


def same_json(one: bytes, other: bytes) -> bool:
    """Some flips change nothing but the layout: a space that becomes a line break."""
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


@pytest.mark.parametrize(("cuts", "flips"), [(8, 24), pytest.param(64, 256, marks=pytest.mark.faults)])
@pytest.mark.parametrize("name", FILES)
def test_damage_is_found_and_costs_one_checkpoint(
    name: str,
    cuts: int,
    flips: int,
    newest: Path,
    quick_path: Path,
    caplog: pytest.LogCaptureFixture,
    record_property: Any,
) -> None:
    path = newest / name
    data = path.read_bytes()
    cases = [*cut(data, cuts), *flip(data, flips), b"", None]
    if name == "manifest.json":
        cases = [case for case in cases if case is None or not same_json(case, data)]
    found = 0
    for case in cases:
        path.unlink(missing_ok=True)
        if case is not None:
            path.write_bytes(case)
        found += is_found(quick_path, path, caplog)
    assert found == len(cases) > flips
    path.write_bytes(data)
    assert load_newest(quick_path).step == 2
    record_property("figure", f"{found} of {len(cases)} damages found, the checkpoint before used")


def test_a_newer_format_is_refused_and_the_one_before_used(
    newest: Path, quick_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = newest / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps({**manifest, "format_version": manifest["format_version"] + 1}))
    assert is_found(quick_path, path, caplog)


def test_nothing_left_is_an_error_and_never_a_fresh_start(newest: Path, quick_path: Path) -> None:
    for folder in (quick_path / "checkpoints").glob("step_*"):
        (folder / "agent.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"(?s)no valid checkpoint.*step_000000002.*agent\.pt"):
        load_newest(quick_path)


@pytest.mark.faults
def test_thousand_random_mutations_end_in_one_kind_of_error(newest: Path, record_property: Any) -> None:
    """Row C3: a manifest that agrees with mutated files, as an attacker would write it."""
    from hostile import forge

    rng = np.random.default_rng(7)
    originals = {name: (newest / name).read_bytes() for name in FILES}
    refused = 0
    for number in range(1000):
        name = FILES[number % 4]
        data = bytearray(originals[name])
        for _ in range(int(rng.integers(1, 8))):
            match rng.integers(3):
                case 0:
                    data[int(rng.integers(len(data)))] = int(rng.integers(256))
                case 1:
                    at = int(rng.integers(len(data)))
                    data[at:at] = rng.bytes(int(rng.integers(1, 64)))
                case 2 if len(data) > 10:
                    at = int(rng.integers(len(data) - 4))
                    del data[at : at + int(rng.integers(1, 4))]
        (newest / name).write_bytes(bytes(data))
        forge(newest)
        try:
            load(newest)
        except CheckpointError:
            refused += 1
        (newest / name).write_bytes(originals[name])
    assert refused > 500  # the others changed a number and nothing else
    record_property("figure", f"1000 mutations: {refused} refused, the others loaded as data, no other error")
