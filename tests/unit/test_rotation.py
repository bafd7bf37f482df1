"""Which checkpoints stay, and the thread that writes them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from retrograd.core.errors import UsageError
from retrograd.training.checkpoint import CheckpointStore, load_newest
from retrograd.training.rotation import Rotation
from retrograd.training.writer import Writer


def save(store: CheckpointStore, step: int, score: float | None = None, replay: set[str] | None = None) -> Path:
    files = {name: {"bytes": 0, "sha256": ""} for name in replay or ()}
    saved = {"index": next(iter(files), ""), "files": files}
    return store.save(
        step=step,
        env_frames=4 * step,
        parts={"weights": {"w": torch.zeros(3)}},
        rng={},
        metrics={},
        config_yaml="{}",
        score=score,
        replay=(lambda: saved) if replay else None,
    )


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (folder / "checkpoints").glob("step_*"))


def test_the_last_ones_the_best_and_every_so_many_frames_stay(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, Rotation(keep_last=2, keep_every_frames=100))
    for step in range(10, 101, 10):
        save(store, step, score={20: 5.0, 60: 1.0}.get(step))
    # the first with 100, 200, 300 and 400 frames; the best; the last two
    assert steps(tmp_path) == [20, 30, 50, 80, 90, 100]
    assert (tmp_path / "checkpoints" / "best").resolve().name == "step_000000020"
    assert not list((tmp_path / "checkpoints").glob(".*"))


def test_one_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="keep_last is 1"):
        Rotation(keep_last=1)
    with pytest.raises(UsageError, match="keep_every_frames is 0"):
        Rotation(2, 0)


def test_nothing_goes_when_the_new_one_cannot_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = CheckpointStore(tmp_path, Rotation(keep_last=2))
    for step in (1, 2):
        save(store, step)
    describe = CheckpointStore._describe

    def lie(self: CheckpointStore, folder: Path, *rest: object) -> dict[str, object]:
        manifest = describe(self, folder, *rest)  # type: ignore[arg-type]
        manifest["files"]["agent.pt"]["sha256"] = "0" * 64
        return manifest

    monkeypatch.setattr(CheckpointStore, "_describe", lie)
    with pytest.raises(Exception, match=r"agent\.pt: its content differs"):
        save(store, 3)
    assert steps(tmp_path) == [1, 2, 3]
    assert load_newest(tmp_path).step == 2


def test_the_replay_is_told_which_files_are_still_named(tmp_path: Path) -> None:
    told: list[set[str]] = []
    store = CheckpointStore(tmp_path, Rotation(keep_last=2), keep_replay_files=told.append)
    save(store, 1, replay={"a"})
    save(store, 2, replay={"a", "b"})
    save(store, 3, replay={"b", "c"})
    save(store, 4, replay={"c"})
    assert told == [{"a"}, {"a", "b"}, {"a", "b", "c"}, {"b", "c"}]


def test_the_replay_of_what_is_kept_for_other_reasons_goes(tmp_path: Path) -> None:
    told: list[set[str]] = []
    store = CheckpointStore(tmp_path, Rotation(keep_last=2, keep_every_frames=4), keep_replay_files=told.append)
    for step, name in enumerate("abcd", start=1):
        save(store, step, score=-step, replay={name})
    assert steps(tmp_path) == [1, 2, 3, 4]
    assert told == [{"a"}, {"a", "b"}, {"b", "c"}, {"c", "d"}]


def test_the_writer_does_one_thing_at_a_time_and_tells_of_errors_once() -> None:
    writer, go = Writer(), threading.Event()

    def job() -> Path:
        go.wait(10)
        return Path("written")

    writer.submit(job)
    with pytest.raises(RuntimeError, match="still under way"):
        writer.submit(job)
    go.set()
    assert writer.wait() == Path("written")

    def fail() -> Path:
        raise OSError("no space left")

    writer.submit(fail)
    with pytest.raises(OSError, match="no space left"):
        writer.wait()
    assert not writer.failed
    writer.close()


def test_the_copy_is_of_the_moment_it_was_prepared(tmp_path: Path) -> None:
    weights = torch.zeros(3)
    write = CheckpointStore(tmp_path).prepare(
        step=1, env_frames=4, parts={"weights": {"w": weights}}, rng={}, metrics={}, config_yaml="{}"
    )
    weights.add_(1.0)
    write()
    assert load_newest(tmp_path).parts["weights"]["w"].tolist() == [0.0, 0.0, 0.0]
