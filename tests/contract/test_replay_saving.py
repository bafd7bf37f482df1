"""Saving: identical samples in another process, only what is new is written, and damage is named."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from retrograd.core import disk
from retrograd.core.errors import CheckpointError, UsageError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.replay import CompressedStorage, NStep, Prioritized, RawStorage, Replay, ReplaySaver, Windows
from retrograd.replay.gather import KERNELS

SPEC = EnvSpec("stacked", ArraySpec((4, 12, 12), np.dtype(np.uint8)), DiscreteActions(6), 4, 4)
STORAGES = {"raw": RawStorage, "compressed": CompressedStorage}


def make(storage: str, capacity: int = 300, n_steps: int = 3) -> Replay[Any]:
    return Replay(STORAGES[storage](SPEC, capacity, 2), Prioritized(), NStep(n_steps), np.random.default_rng(7))


def go_on(replay: Replay[Any], first: int, steps: int) -> str:
    """Play, sample and learn from step ``first`` on; a digest of all that was sampled."""
    digest = hashlib.sha256()
    for t in range(first, first + steps):
        replay.add(step_at(t))
        if t % 5 == 0 and len(replay):
            batch = replay.sample(16, step=t)
            for tensor in (batch.obs, batch.next_obs, batch.reward, batch.discount, batch.weight, batch.action):
                digest.update(tensor.contiguous().numpy().tobytes())
            digest.update(batch.index.tobytes())
            replay.update(batch.index, batch.reward.abs() + 0.1)
    return digest.hexdigest()


def step_at(t: int) -> Step:
    """A step that depends on its time alone, so that any process can make it."""
    ends = np.array([t % 37 == 36, t % 23 == 22])
    limit = np.array([t % 2 == 0, t % 3 == 0])
    return Step(
        obs=stacks(t),
        action=np.array([t % 6, t % 5]),
        reward=np.array([np.sin(t), np.cos(t)], np.float32),
        terminated=ends & ~limit | np.array([t % 11 == 10, False]),
        truncated=ends & limit,
        reset=ends,
        next_obs=np.stack([stack(row, t + 1, 1 + played(row, t)) for row in range(2)]),
    )


def played(row: int, t: int) -> int:
    return t % (37, 23)[row]


def stacks(t: int) -> np.ndarray:
    return np.stack([stack(row, t, played(row, t)) for row in range(2)])


def stack(row: int, t: int, age: int) -> np.ndarray:
    obs = np.zeros((4, 12, 12), np.uint8)
    for back in range(min(age + 1, 4)):
        number = t - back
        final = 1 if back == 0 and age and number % (37, 23)[row] == 0 else 0  # differs from the reset frame
        obs[3 - back] = np.random.default_rng([row, number, final]).integers(0, 256, (12, 12))
    return obs


def child(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )


def main(action: str, storage: str, folder: str) -> None:
    """What the child processes do: save twice and die in the middle of a third save, or load and go on."""
    replay, saver = make(storage), ReplaySaver(folder)
    if action == "fallback":
        sys.stdout.write(f"{KERNELS} {go_on(replay, 0, 200)}")
        return
    if action == "continue":
        saver.load(replay)
        replay.check_valid()
        sys.stdout.write(go_on(replay, 260, 120))
        return
    for first in (0, 130):
        go_on(replay, first, 130)
        saver.save(replay)
    go_on(replay, 260, 90)
    saver._replace = lambda name, data: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    saver.save(replay)


@pytest.mark.parametrize("storage", STORAGES)
def test_save_kill_load_in_a_new_process(storage: str, tmp_path: Path) -> None:
    """REQ RUN-5: the loaded replay goes on as if nothing had happened."""
    uninterrupted = make(storage)
    go_on(uninterrupted, 0, 130)
    go_on(uninterrupted, 130, 130)
    died = child("save", storage, str(tmp_path))
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len(list(tmp_path.glob("segment-*"))) == 3, "the third save did not get under way"
    loaded = child("continue", storage, str(tmp_path))
    assert loaded.returncode == 0, loaded.stderr
    assert loaded.stdout == go_on(uninterrupted, 260, 120)


@pytest.mark.parametrize("storage", STORAGES)
def test_without_the_extension_everything_is_the_same(storage: str) -> None:
    hidden = (
        "import runpy, sys; sys.modules['retrograd.replay._kernels'] = None; sys.argv[0] = sys.argv[1]; del sys.argv[1]"
    )
    run = f"{hidden}; runpy.run_path(sys.argv[0], run_name='__main__')"
    command = [sys.executable, "-c", run, __file__, "fallback", storage, "unused"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"None {go_on(make(storage), 0, 200)}", done.stderr


@pytest.mark.parametrize("storage", STORAGES)
def test_later_saves_write_only_what_is_new(storage: str, tmp_path: Path) -> None:
    replay, saver = make(storage, capacity=2000), ReplaySaver(tmp_path)
    go_on(replay, 0, 400)
    saver.save(replay)
    first = {path: path.stat().st_mtime_ns for path in tmp_path.glob("segment-*")}
    go_on(replay, 400, 20)
    saver.save(replay)
    second = set(tmp_path.glob("segment-*")) - set(first)
    assert all(path.stat().st_mtime_ns == time for path, time in first.items())
    assert len(second) == 1
    assert second.pop().stat().st_size < sum(path.stat().st_size for path in first) / 10
    assert len(list(tmp_path.glob("light-*"))) == 2  # of this save and the one before


def test_segments_of_what_was_overwritten_go(tmp_path: Path) -> None:
    replay, saver = make("raw"), ReplaySaver(tmp_path)
    for first in range(0, 1000, 100):
        go_on(replay, first, 100)
        saver.save(replay)
    assert len(list(tmp_path.glob("segment-*"))) <= 4
    other = make("raw")
    ReplaySaver(tmp_path).load(other)
    assert go_on(other, 1000, 50) == go_on(replay, 1000, 50)


def test_a_loaded_replay_is_saved_on(tmp_path: Path) -> None:
    replay = make("compressed")
    go_on(replay, 0, 100)
    ReplaySaver(tmp_path).save(replay)
    replay, saver = make("compressed"), ReplaySaver(tmp_path)
    saver.load(replay)
    go_on(replay, 100, 100)
    saver.save(replay)
    assert len(list(tmp_path.glob("segment-*"))) == 2
    other = make("compressed")
    ReplaySaver(tmp_path).load(other)
    assert go_on(other, 200, 50) == go_on(replay, 200, 50)


def test_the_save_before_stays_loadable(tmp_path: Path) -> None:
    """A checkpoint that names it goes on from there, and later saves replace the one that nobody named."""
    replay, saver = make("raw"), ReplaySaver(tmp_path)
    names = []
    for first in range(0, 300, 100):
        go_on(replay, first, 100)
        names.append(saver.save(replay))
    with pytest.raises(CheckpointError, match=names[0]):
        ReplaySaver(tmp_path).load(make("raw"), names[0])
    other, saver = make("raw"), ReplaySaver(tmp_path)
    saver.load(other, names[1])
    digest = go_on(other, 200, 100)
    names.append(saver.save(other))
    assert sorted(path.name for path in tmp_path.glob("index-*")) == [names[1], names[3]]
    last = make("raw")
    ReplaySaver(tmp_path).load(last, names[1])
    assert go_on(last, 200, 100) == digest


@pytest.mark.parametrize("refused", ["segment", "light", "index"])
def test_a_save_that_fails_leaves_nothing_behind(refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that was full needs the room for the next try."""

    class Full(disk.FileSystem):
        def sync(self, file: Any) -> None:
            if Path(file.name).name.startswith(refused):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)
            super().sync(file)

    replay, saver = make("raw"), ReplaySaver(tmp_path)
    go_on(replay, 0, 50)
    saver.save(replay)
    before = sorted(tmp_path.iterdir())
    go_on(replay, 50, 50)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "system", Full())
        with pytest.raises(OSError, match="No space left"):
            saver.save(replay)
    assert sorted(tmp_path.iterdir()) == before
    saver.save(replay)
    loaded = make("raw")
    ReplaySaver(tmp_path).load(loaded)
    assert go_on(loaded, 100, 20) == go_on(replay, 100, 20)


def test_another_replays_files_are_replaced(tmp_path: Path) -> None:
    """A saver that neither wrote nor loaded what lies there starts anew."""
    first = make("raw")
    go_on(first, 0, 200)
    ReplaySaver(tmp_path).save(first)
    second = make("raw")
    go_on(second, 50, 30)
    ReplaySaver(tmp_path).save(second)
    other = make("raw")
    ReplaySaver(tmp_path).load(other)
    assert len(other) == len(second)
    assert go_on(other, 80, 50) == go_on(second, 80, 50)


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    notes, torn = tmp_path / "my-notes.txt", tmp_path / "index-000007.json.tmp"
    notes.write_text("mine")
    torn.write_text("left by a process that died")
    replay = make("raw")
    go_on(replay, 0, 20)
    assert ReplaySaver(tmp_path).save(replay) == "index-000008.json"
    assert notes.read_text() == "mine"
    assert not torn.exists()


def saved(folder: Path) -> Path:
    replay = make("raw")
    go_on(replay, 0, 100)
    ReplaySaver(folder).save(replay)
    return next(folder.glob("segment-*"))


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [cut_short, flip_a_byte, Path.unlink])
@pytest.mark.parametrize("kind", ["segment", "light"])
def test_damage_is_named(damage: Any, kind: str, tmp_path: Path) -> None:
    saved(tmp_path)
    path = next(tmp_path.glob(f"{kind}-*"))
    damage(path)
    with pytest.raises(CheckpointError, match=path.name):
        ReplaySaver(tmp_path).load(make("raw"))


def test_bad_index_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no saved replay"):
        ReplaySaver(tmp_path).load(make("raw"))
    saved(tmp_path)
    with pytest.raises(UsageError, match="the saved replay has slots_per_row"):
        ReplaySaver(tmp_path).load(make("raw", capacity=500))
    with pytest.raises(UsageError, match="the saved replay has n_steps 3: this one has 2"):
        ReplaySaver(tmp_path).load(make("raw", n_steps=2))
    index = next(tmp_path.glob("index-*"))
    text = index.read_text()
    index.write_text(text[:-20])
    with pytest.raises(CheckpointError, match=r"index-000001\.json: is not readable"):
        ReplaySaver(tmp_path).load(make("raw"))
    index.write_text(json.dumps(json.loads(text) | {"version": 99}))
    with pytest.raises(CheckpointError, match="version 99"):
        ReplaySaver(tmp_path).load(make("raw"))


def test_state_dict_is_plain_and_complete() -> None:
    """What a checkpoint file can hold, and the same samples from it."""
    replay = make("compressed")
    go_on(replay, 0, 200)
    state = replay.state_dict()
    assert_plain(state)
    other = make("compressed")
    other.load_state_dict(state)
    assert go_on(other, 200, 60) == go_on(replay, 200, 60)


def assert_plain(value: Any) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            assert isinstance(key, str)
            assert_plain(item)
    elif isinstance(value, list):
        for item in value:
            assert_plain(item)
    else:
        assert isinstance(value, np.ndarray | int | float | str | bool)


def test_windows_are_saved_with_their_states(tmp_path: Path) -> None:
    extras = {"h": ArraySpec((2,), np.dtype(np.float32))}

    def windows() -> Replay[Any]:
        reader = Windows(8, stride_steps=4, burn_in_steps=2, state=("h",))
        return Replay(RawStorage(SPEC, 200, 2, extras=extras), Prioritized(), reader, np.random.default_rng(7))

    replay, other = windows(), windows()
    for t in range(150):
        step = step_at(t)
        state = {"h": np.full((2, 2), t, np.float32)}
        replay.add(
            Step(step.obs, step.action, step.reward, step.terminated, step.truncated, step.reset, step.next_obs, state)
        )
    ReplaySaver(tmp_path).save(replay)
    ReplaySaver(tmp_path).load(other)
    first, second = replay.sample(8, step=0), other.sample(8, step=0)
    assert torch.equal(first.state["h"], second.state["h"])
    assert torch.equal(first.obs, second.obs)


if __name__ == "__main__":
    main(*sys.argv[1:])
