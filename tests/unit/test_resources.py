"""Short of disk or memory: what is told, when, and how often."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pytest
import torch

from retrograd.build.disk_space import check_disk, checkpoints_kept
from retrograd.config import ConfigManager
from retrograd.core.errors import ResourceError, UsageError
from retrograd.training.resources import MemoryWatch, SaveGuard, _container_memory, memory_left

FULL = OSError(errno.ENOSPC, "No space left on device", "agent.pt")


def test_failed_saves_are_told_once_and_end_the_run_at_the_third(caplog: pytest.LogCaptureFixture) -> None:
    guard = SaveGuard()
    guard.failed(FULL, 10)
    guard.failed(FULL, 20)
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "step 10 could not be saved: No space left on device: agent.pt" in caplog.text
    with pytest.raises(ResourceError, match=r"3 checkpoints in a row .* step 30: No space left on device: agent\.pt"):
        guard.failed(FULL, 30)


def test_a_save_in_between_starts_the_count_anew(caplog: pytest.LogCaptureFixture) -> None:
    guard = SaveGuard()
    for _ in range(5):
        guard.failed(FULL, 1)
        guard.failed(FULL, 2)
        guard.succeeded()
    assert "can be saved again, after 2 failed" in caplog.text


def test_memory_is_looked_at_once_a_second_and_the_figures_are_told() -> None:
    left, now, looks = [50], [0.0], []

    def read() -> tuple[int, int]:
        looks.append(now[0])
        return left[0] * 10**8, 100 * 10**8

    watch = MemoryWatch(0.9, read=read, clock=lambda: now[0])
    assert watch.problem() is None
    left[0] = 5
    now[0] = 0.5
    assert watch.problem() is None  # too early to look again
    now[0] = 1.0
    assert "9.50 of 10.00 GB memory are in use" in str(watch.problem())
    assert looks == [0.0, 1.0]
    assert MemoryWatch(None, read=read).problem() is None


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    assert _container_memory(tmp_path) is None
    for name, text in {"max": "1000\n", "current": "900\n", "stat": "anon 700\ninactive_file 150\n"}.items():
        (tmp_path / f"memory.{name}").write_text(text)
    assert _container_memory(tmp_path) == (250, 1000)
    (tmp_path / "memory.max").write_text("max\n")
    assert _container_memory(tmp_path) is None
    left, total = memory_left()
    assert 0 < left < total


def test_a_run_that_would_fill_the_disk_is_refused_with_the_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = torch.nn.Linear(1000, 1000, bias=False)  # 4 MB
    free = 10**9
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": free}))
    place = tmp_path / "not" / "there"
    check_disk(place, parts={"network": network}, checkpoints=5, replay_bytes=10**9)
    free = 10**8
    with pytest.raises(UsageError, match=r"0\.10 GB free and the run needs 0\.18 GB: 5 checkpoints of 0\.012 GB"):
        check_disk(place, parts={"network": network}, checkpoints=5, replay_bytes=10**9)
    assert not place.exists()


def test_what_lies_there_already_needs_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = torch.nn.Linear(1000, 1000, bias=False)  # 4 MB; five checkpoints of it with an optimizer 66
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 60 * 10**6}))
    for name in ("checkpoints/step_000000001", "replay", "elsewhere"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "elsewhere" / "file").write_bytes(bytes(4 * 10**6))
    (tmp_path / "replay" / "segment").write_bytes(bytes(4 * 10**6))
    with pytest.raises(UsageError, match=r"0\.06 GB free and the run needs 0\.06 GB more"):
        check_disk(tmp_path, parts={"network": network}, checkpoints=5, replay_bytes=0)
    (tmp_path / "checkpoints" / "step_000000001" / "agent.pt").write_bytes(bytes(4 * 10**6))
    check_disk(tmp_path, parts={"network": network}, checkpoints=5, replay_bytes=0)


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ([], 5),  # the last three, the best and the one being written
        (["checkpoint.keep_every_frames=1000"], 5 + 10),
        (["checkpoint.keep_every_frames=1"], 5 + 20),  # no more than are saved
        (["checkpoint.keep_every_frames=1", "training.full_eval_every_frames=2000"], 5 + 20 + 5),
        (["checkpoint.keep_every_frames=1000", "checkpoint.every_frames=null"], 5),
        (
            ["checkpoint.keep_every_frames=1000", "checkpoint.every_frames=null", "training.eval_every_episodes=5"],
            5 + 10,
        ),
    ],
)
def test_checkpoints_that_stay_for_good_are_counted(words: list[str], kept: int) -> None:
    place = ["training.total_env_frames=10000", "checkpoint.every_frames=500", "training.full_eval_every_frames=null"]
    episodes = ["training.eval_every_episodes=null", "training.checkpoint_every_episodes=null"]
    assert checkpoints_kept(ConfigManager(None).compose([*place, *episodes, *words])) == kept
