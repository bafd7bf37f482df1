"""Checkpoints are whole or not there, and nothing damaged or hostile is ever used."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from retrograd.core.errors import CheckpointError, UsageError
from retrograd.core.seeding import Streams
from retrograd.training import durable
from retrograd.training.checkpoint import CheckpointStore, load, load_newest, locate

FILES = ["agent.pt", "rng_states.pt", "metrics.json", "config.yaml", "video.mp4", "manifest.json"]


def save(run: Path, step: int, *, score: float | None = None, video: bool = False, **parts: Any) -> Path:
    clip = None
    if video:
        clip = run / "clip.mp4"
        run.mkdir(exist_ok=True)
        clip.write_bytes(b"not really a video" * 10)
    streams = Streams(3)
    streams["replay"].random()
    return CheckpointStore(run).save(
        step=step,
        env_frames=4 * step,
        parts=parts or {"counter": {"value": step}},
        rng={"streams": streams.state_dict()},
        metrics={"loss": 0.5, "worst": float("nan")},
        config_yaml="seed: 3\nagent:\n  name: dqn\n",
        video=clip,
        score=score,
    )


def forge(folder: Path, **changes: Any) -> None:
    """Make the manifest agree with changed files, as an attacker would."""
    manifest = {**json.loads((folder / "manifest.json").read_text()), **changes}
    del manifest["sha256"]
    for name, entry in manifest["files"].items():
        if (folder / name).parent == folder:
            data = (folder / name).read_bytes()
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["sha256"] = hashlib.sha256(durable.encode_json(manifest)).hexdigest()
    durable.write_json(folder / "manifest.json", manifest)


def test_round_trip_of_modules_optimizers_arrays_and_generators(tmp_path: Path) -> None:
    network = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    extras = {"strided": array[:, ::2], "scalar": np.float32(0.1), "big": 2**100, "raw": b"", "pair": (1, None)}
    path = save(tmp_path, 8, video=True, network=network, optimizer=optimizer, extras=extras)
    assert sorted(os.listdir(path)) == sorted(FILES)
    assert not (tmp_path / "clip.mp4").exists()

    loaded = load(tmp_path)
    assert (loaded.step, loaded.env_frames, loaded.path) == (8, 32, path.resolve())
    assert loaded.config == {"seed": 3, "agent": {"name": "dqn"}}
    assert loaded.metrics == {"loss": 0.5, "worst": None}
    other = torch.nn.Linear(3, 2)
    other.load_state_dict(loaded.parts["network"])
    torch.optim.Adam(other.parameters()).load_state_dict(loaded.parts["optimizer"])
    assert torch.equal(other.weight, network.weight)
    got = loaded.parts["extras"]
    np.testing.assert_array_equal(got["strided"].numpy(), array[:, ::2])
    assert bytes(got["raw"].numpy()) == b""
    assert (got["scalar"], got["big"], got["pair"]) == (float(np.float32(0.1)), 2**100, (1, None))

    streams, restored = Streams(3), Streams(0)
    streams["replay"].random()
    restored.load_state_dict(loaded.rng["streams"])
    assert restored["replay"].random() == streams["replay"].random()


def test_view_is_saved_without_the_tensor_it_looks_at(tmp_path: Path) -> None:
    path = save(tmp_path, 1, part={"row": torch.zeros(1000, 1000)[0]})
    assert (path / "agent.pt").stat().st_size < 100_000


@pytest.mark.parametrize("value", [{1, 2}, np.array(["a"], dtype=object), object(), {(1, 2): 3}])
def test_values_that_could_not_be_loaded_safely_are_refused_by_name(tmp_path: Path, value: Any) -> None:
    with pytest.raises(CheckpointError, match=r"agent.pt\['parts'\]\['part'\]\['odd'\]"):
        save(tmp_path, 1, part={"odd": value})
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["truncated", "emptied", "flipped", "missing"])
def test_damage_is_detected_in_every_file(tmp_path: Path, name: str, damage: str) -> None:
    save(tmp_path, 1)
    path = save(tmp_path, 2, video=True)
    data = (path / name).read_bytes()
    cases = {"missing": [None], "emptied": [b""], "truncated": [data[:-1], data[: len(data) // 2]], "flipped": []}
    generator = np.random.default_rng(0)
    for position, bit in generator.integers((len(data), 8), size=(32, 2)) if damage == "flipped" else ():
        cases["flipped"].append(data[:position] + bytes([data[position] ^ (1 << bit)]) + data[position + 1 :])
    for case in cases[damage]:
        (path / name).unlink(missing_ok=True)
        if case is not None:
            (path / name).write_bytes(case)
        if name == "manifest.json" and case == data[:-1]:
            continue  # only the final line break is gone: the manifest is the same
        with pytest.raises(CheckpointError, match=name):
            load(path)
        assert load_newest(tmp_path).step == 1


def test_checkpoint_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    forge(path, format_version=2)
    with pytest.raises(CheckpointError, match="format_version is 2"):
        load(path)


@pytest.mark.parametrize("name", ["agent.pt", "rng_states.pt"])
@pytest.mark.parametrize("form", ["torch", "legacy torch", "pickle"])
def test_malicious_pickle_is_not_executed(tmp_path: Path, name: str, form: str) -> None:
    canary = tmp_path / "canary"

    class Payload:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(canary),)

    path = save(tmp_path, 1)
    content = {"format": 1, "step": 1, "env_frames": 4, "parts": Payload(), "rng": Payload()}
    if form == "pickle":
        (path / name).write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path / name, _use_new_zipfile_serialization=form == "torch")
    forge(path)
    with pytest.raises(CheckpointError, match=name):
        load(path)
    assert not canary.exists()


def test_python_objects_in_the_config_are_not_made(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "config.yaml").write_text(f"a: !!python/object/apply:os.mkdir ['{tmp_path / 'canary'}']\n")
    forge(path)
    with pytest.raises(CheckpointError, match=r"config.yaml"):
        load(path)
    assert not (tmp_path / "canary").exists()


def test_compressed_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = save(tmp_path, 1, part={"zeros": torch.zeros(100_000)})
    with (
        zipfile.ZipFile(path / "agent.pt") as old,
        zipfile.ZipFile(tmp_path / "bomb", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for member in old.infolist():
            new.writestr(member.filename, old.read(member))
    shutil.move(tmp_path / "bomb", path / "agent.pt")
    forge(path)
    with pytest.raises(CheckpointError, match="compressed"):
        load(path)


def test_manifest_cannot_point_outside(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (tmp_path / "secret").write_bytes(b"x")
    files = json.loads((path / "manifest.json").read_text())["files"]
    outside = {"bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}
    forge(path, files={**files, "../../secret": outside})
    with pytest.raises(CheckpointError, match=r"manifest.json: is incomplete"):
        load(path)


def test_best_and_latest_links_and_catalog(tmp_path: Path) -> None:
    for step, score in [(100, 5.0), (200, 9.0), (300, 9.0), (400, None), (500, -1.0)]:
        save(tmp_path, step, score=score)
    folder = tmp_path / "checkpoints"
    assert os.readlink(folder / "best") == "step_000000200"
    assert os.readlink(folder / "latest") == "step_000000500"
    catalog = json.loads((folder / "catalog.json").read_text())
    assert [(entry["step"], entry["path"], entry["eval_score"]) for entry in catalog[:2]] == [
        (100, "step_000000100", 5.0),
        (200, "step_000000200", 9.0),
    ]
    assert all(entry.keys() == {"step", "path", "eval_score", "timestamp"} for entry in catalog)


def test_no_best_without_a_full_evaluation(tmp_path: Path) -> None:
    save(tmp_path, 1)
    assert not os.path.lexists(tmp_path / "checkpoints" / "best")
    assert locate(tmp_path).name == "step_000000001"


def test_score_must_be_finite(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="score is nan"):
        save(tmp_path, 1, score=float("nan"))


def test_step_saved_twice_keeps_both_and_the_later_is_newest(tmp_path: Path) -> None:
    save(tmp_path, 7, part={"take": 1})
    second = save(tmp_path, 7, part={"take": 2})
    assert second.name == "step_000000007_take2"
    assert load(tmp_path, prefer="latest").parts["part"]["take"] == 2
    assert load(tmp_path / "checkpoints" / "step_000000007").parts["part"]["take"] == 1


def test_newest_is_the_last_saved_even_after_going_back(tmp_path: Path) -> None:
    for step in (10, 20, 15):
        save(tmp_path, step)
    assert load_newest(tmp_path).step == 15
    assert locate(tmp_path, prefer="latest").name == "step_000000015"


def test_locate_accepts_every_way_to_name_a_checkpoint(tmp_path: Path) -> None:
    best, latest = save(tmp_path, 1, score=2.0).resolve(), save(tmp_path, 2, score=1.0).resolve()
    folder = tmp_path / "checkpoints"
    for path in (tmp_path, folder, folder / "best", best, best / "agent.pt", folder / "best" / "agent.pt"):
        assert locate(path) == best
    for path in (tmp_path, folder):
        assert locate(path, prefer="latest") == latest
    assert locate(folder / "latest") == latest
    with pytest.raises(UsageError, match="Did you mean 'latest'"):
        locate(tmp_path, prefer="lastest")  # type: ignore[arg-type]


def test_locate_without_links_uses_the_scores(tmp_path: Path) -> None:
    for step, score in [(1, 3.0), (2, 1.0)]:
        save(tmp_path, step, score=score)
    for name in ("best", "latest", "catalog.json"):
        (tmp_path / "checkpoints" / name).unlink()
    assert locate(tmp_path).name == "step_000000001"
    assert locate(tmp_path, prefer="latest").name == "step_000000002"


@pytest.mark.parametrize("named", ["", "checkpoints", "checkpoints/best"])
def test_dangling_link_falls_back_to_the_newest_valid(
    tmp_path: Path, named: str, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [save(tmp_path, step, score=step) for step in (1, 2, 3)]
    save(tmp_path, 4, score=9)
    shutil.rmtree(tmp_path / "checkpoints" / "step_000000004")
    (paths[2] / "agent.pt").write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        assert locate(tmp_path / named) == paths[1].resolve()
    assert "step_000000004" in caplog.text
    assert "step_000000003" in caplog.text


def test_nothing_found_says_what_was_looked_for(tmp_path: Path) -> None:
    for action in (locate, load):
        with pytest.raises(CheckpointError, match=r"agent\.pt.*latest.*step_"):
            action(tmp_path / "no such run")
    with pytest.raises(CheckpointError, match="no valid checkpoint"):
        load_newest(tmp_path)


def test_every_skipped_checkpoint_is_reported_with_its_reason(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    paths = [save(tmp_path, step) for step in (1, 2, 3)]
    (paths[2] / "manifest.json").unlink()
    (paths[1] / "rng_states.pt").unlink()
    with caplog.at_level(logging.WARNING):
        assert load_newest(tmp_path).step == 1
    messages = [record.getMessage() for record in caplog.records]
    assert any("step_000000003" in text and "manifest.json" in text for text in messages)
    assert any("step_000000002" in text and "rng_states.pt" in text for text in messages)
    (paths[0] / "agent.pt").unlink()
    with pytest.raises(CheckpointError, match=r"(?s)agent\.pt"):
        load_newest(tmp_path)


@pytest.mark.parametrize("call", ["fsync", "rename", "replace", "symlink"])
def test_save_interrupted_at_any_call_leaves_a_loadable_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Fails the k-th call for every k until a save gets through."""
    save(tmp_path, 1, score=1.0)
    real = getattr(os, call)
    for failing in range(100):
        seen = 0

        def fail(*arguments: Any, failing: int = failing, **options: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen > failing:
                raise OSError(errno.EIO, "injected")
            return real(*arguments, **options)

        monkeypatch.setattr(os, call, fail)
        try:
            save(tmp_path, 2 + failing, score=2.0 + failing, video=True)
        except OSError:
            interrupted = True
        else:
            interrupted = False
        monkeypatch.setattr(os, call, real)
        newest = load_newest(tmp_path)
        assert newest.step in (1, *range(2, 3 + failing))
        assert load(tmp_path).step >= 1
        # whatever is listed under a final name is whole
        for path in (tmp_path / "checkpoints").glob("step_*"):
            load(path)
        if not interrupted:
            break
    assert failing > 0
    assert newest.step == 2 + failing
    assert not list((tmp_path / "checkpoints").glob(".tmp-*"))


def test_failed_save_leaves_the_video_to_whoever_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", fail)
        with pytest.raises(OSError, match="No space"):
            save(tmp_path, 1, video=True)
    assert (tmp_path / "clip.mp4").exists()


def test_leftover_of_a_killed_save_is_removed_and_never_loaded(tmp_path: Path) -> None:
    save(tmp_path, 1)
    leftover = tmp_path / "checkpoints" / ".tmp-step_000000002"
    shutil.copytree(tmp_path / "checkpoints" / "step_000000001", leftover)
    assert load_newest(tmp_path).path.name == "step_000000001"
    save(tmp_path, 2)
    assert not leftover.exists()


def test_file_system_without_links_still_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "symlink", refuse)
    save(tmp_path, 1, score=5.0)
    save(tmp_path, 2, score=1.0)
    assert load(tmp_path).step == 1


def test_every_byte_is_synced_before_its_name_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    fsync, rename = os.fsync, os.rename

    def spy_fsync(descriptor: int) -> None:
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def spy_rename(source: Any, target: Any) -> None:
        order.append(f"rename {Path(target).name}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "rename", spy_rename)
    save(tmp_path, 1, video=True)
    named = order.index("rename step_000000001")
    assert {*FILES, ".tmp-step_000000001"} <= set(order[:named])
    assert order[named + 1] == "checkpoints"


def test_publishing_never_replaces(tmp_path: Path) -> None:
    for name in ("new", "old"):
        (tmp_path / name).mkdir()
    with pytest.raises(FileExistsError):
        durable.publish_folder(tmp_path / "new", tmp_path / "old")


def test_failed_write_keeps_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable.write_json(tmp_path / "a.json", {"x": np.float32(1), "y": [float("inf")], "z": tmp_path})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1.0, "y": [None], "z": str(tmp_path)}
    before = (tmp_path / "a.json").read_bytes()

    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "injected")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="injected"):
        durable.write_text(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_bytes() == before
    assert os.listdir(tmp_path) == ["a.json"]
