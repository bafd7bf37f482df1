"""Every single change of the disk during a save is a place to die: nothing acknowledged is ever lost there.

REQ RUN-5, RUN-11. ``k`` runs over all opens, writes, syncs, renames, links and unlinks of a save until one completes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from injection import IO_ERROR, NO_SPACE, Crash, FaultyDisk, PowerCut, installed, leave

from retrograd.core.errors import CheckpointError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.replay import NStep, RawStorage, Replay, Uniform
from retrograd.replay.saving import ReplaySaver
from retrograd.training.checkpoint import CheckpointStore, load, load_newest
from retrograd.training.rotation import Rotation

Save = Callable[[Path, int], None]


def save(run: Path, step: int) -> None:
    """A checkpoint that knows its step, in a run that keeps the last two and the best."""
    clip = run / f"clip-{step}.mp4"
    clip.write_bytes(b"moving pictures" * 100)
    CheckpointStore(run, Rotation(keep_last=2)).save(
        step=step,
        env_frames=4 * step,
        parts={"counter": {"value": step, "weights": np.full(2000, step, np.float32)}},
        rng={"seed": step},
        metrics={"step": step},
        config_yaml=f"seed: {step}\n",
        video=clip,
        score=float(-step),
    )


def check(run: Path, acknowledged: int, attempted: int) -> int:
    """What can be loaded afterwards: all that is listed, and at least what was acknowledged."""
    if not acknowledged and not list((run / "checkpoints").glob("step_*")):
        with pytest.raises(CheckpointError):
            load_newest(run)
        return 0
    for folder in (run / "checkpoints").glob("step_*"):
        found = load(folder)
        assert found.parts["counter"]["value"] == found.step
        assert (found.parts["counter"]["weights"] == found.step).all()
    newest = load_newest(run)
    assert newest.step in {acknowledged, attempted} - {0}
    load(run, prefer="latest")
    load(run, prefer="best")
    return newest.step


SCENES = {"first save": 0, "later save": 1, "rotation": 4}  # by the checkpoints there are before


def prepared(quick_path: Path, saves: int) -> Path:
    base = quick_path / "base"
    base.mkdir()
    for step in range(1, saves + 1):
        save(base, step)
    return base


def every_point(base: Path, attempt: Callable[[Path, int], bool], limit: int = 300) -> int:
    """Runs ``attempt(copy of the run, k)`` for k = 1, 2, … until it says that the save completed; the number of k."""
    for k in range(1, limit):
        run = base.parent / "run"
        shutil.copytree(base, run, symlinks=True)
        completed = attempt(run, k)
        shutil.rmtree(run)
        if completed:
            return k - 1
    raise AssertionError(f"no save completed within {limit} changes")


@pytest.mark.parametrize("scene", SCENES)
def test_a_crash_at_every_change_loses_nothing(scene: str, quick_path: Path, record_property: Any) -> None:
    before = SCENES[scene]
    survived = []

    def attempt(run: Path, k: int) -> bool:
        faulty = FaultyDisk(k)
        try:
            with installed(faulty):
                save(run, before + 1)
        except Crash:
            survived.append(check(run, before, before + 1))
            save(run, before + 2)  # the next start heals what is left
            check(run, before + 2, before + 2)
            assert not list((run / "checkpoints").glob(".*"))
            return False
        assert faulty.count < k
        return True

    points = every_point(prepared(quick_path, before), attempt)
    assert points > 25
    assert before in survived  # some crashes come before the new one counts
    assert before + 1 in survived  # and some after
    record_property("figure", f"{points} of {points} crash points recovered")


def ended_at(k: int, job: Callable[[], None]) -> bool:
    """Run ``job`` in a process of its own that ends at the k-th change of the disk; whether it came to that."""
    child = os.fork()
    if child == 0:
        try:
            with installed(FaultyDisk(k, leave)):
                job()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 137)
    return code == 137


@pytest.mark.faults
@pytest.mark.parametrize("scene", SCENES)
def test_a_process_that_ends_at_every_change_loses_nothing(scene: str, quick_path: Path, record_property: Any) -> None:
    """The same with a process that really ends: buffers are not flushed and no handler runs."""
    before = SCENES[scene]

    def attempt(run: Path, k: int) -> bool:
        ended = ended_at(k, lambda: save(run, before + 1))
        check(run, before + (not ended), before + 1)
        return not ended

    points = every_point(prepared(quick_path, before), attempt)
    record_property("figure", f"{points} of {points} ended processes recovered")


@pytest.mark.parametrize("scene", ["first save", pytest.param("later save", marks=pytest.mark.faults), "rotation"])
def test_a_power_cut_at_every_change_loses_nothing(scene: str, quick_path: Path, record_property: Any) -> None:
    """SIGKILL does not test syncs, as the system's cache survives it. Here unsynced data and names are dropped, all of
    them or at random."""
    before, cuts = SCENES[scene], 0
    rng = np.random.default_rng(0)

    def attempt(run: Path, k: int) -> bool:
        nonlocal cuts
        whole = run.parent / "whole"
        done = False
        for keep in (0.0, 0.5):
            shutil.rmtree(whole, ignore_errors=True)
            shutil.copytree(run, whole, symlinks=True)
            disk = PowerCut(whole, k)
            try:
                with installed(disk):
                    save(whole, before + 1)
                done = True
            except Crash:
                pass
            disk.restore(rng, keep)
            cuts += 1
            check(whole, before + done, before + 1)
        return done

    every_point(prepared(quick_path, before), attempt)
    assert cuts > 50
    record_property("figure", f"{cuts} of {cuts} power cuts recovered")


@pytest.mark.faults
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("times", [1, 10**6])
@pytest.mark.parametrize("fault", [NO_SPACE, IO_ERROR], ids=["ENOSPC", "EIO"])
def test_an_error_at_every_change_is_told_and_harmless(
    scene: str, times: int, fault: Any, quick_path: Path, record_property: Any
) -> None:
    """A full or broken disk, for a moment or for good: an OSError, the checkpoints before intact, no litter later."""
    before = SCENES[scene]

    def attempt(run: Path, k: int) -> bool:
        faulty = FaultyDisk(k, fault, times=times)
        try:
            with installed(faulty):
                save(run, before + 1)
            told = False
        except OSError:
            told = True
        check(run, before, before + 1)
        if faulty.count < k:
            assert not told
            return True
        save(run, before + 2)
        check(run, before + 2, before + 2)
        assert not list((run / "checkpoints").glob(".*"))
        return False

    points = every_point(prepared(quick_path, before), attempt)
    record_property("figure", f"{points} of {points} errors survived")


def replay_of(steps: int) -> Replay[Any]:
    """A replay after so many steps; what it holds follows from their number alone."""
    spec = EnvSpec("toy", ArraySpec((3,), np.dtype(np.float32)), DiscreteActions(2))
    replay = Replay(RawStorage(spec, 60, 2), Uniform(), NStep(1, 0.9), np.random.default_rng(0), torch.device("cpu"))
    no, action = np.zeros(2, bool), np.zeros(2, np.int64)
    for t in range(steps):
        obs, after = (np.full((2, 3), moment, np.float32) for moment in (t, t + 1))
        replay.add(Step(obs, action, np.full(2, t, np.float32), no, no, no, after))
    return replay


def save_with_replay(run: Path, step: int) -> None:
    """Step ``step`` has 20 more steps in its replay than the one before; segments are continued, old ones dropped."""
    saver = ReplaySaver(run / "replay")
    if step > 1:
        before = load_newest(run, with_replay=True)
        saver.load(replay_of(0), before.replay)
    CheckpointStore(run, Rotation(keep_last=2), keep_replay_files=saver.keep_only).save(
        step=step,
        env_frames=step,
        parts={"counter": {"value": step}},
        rng={},
        metrics={},
        config_yaml="seed: 1\n",
        replay=saver.prepare(replay_of(20 * step)),
    )


def check_replay(run: Path) -> int:
    """Every checkpoint that is listed loads with the replay it was saved with; the newest step."""
    for folder in (run / "checkpoints").glob("step_*"):
        found = load(folder)
        replay, wanted = replay_of(0), replay_of(20 * found.step)
        ReplaySaver(run / "replay").load(replay, found.replay)
        one, other = replay.sample(64, step=0), wanted.sample(64, step=0)
        assert torch.equal(one.obs, other.obs)
        assert torch.equal(one.reward, other.reward)
    return load_newest(run, with_replay=True).step


def test_a_crash_at_every_change_of_a_replay_segment_loses_nothing(quick_path: Path, record_property: Any) -> None:
    base = quick_path / "base"
    base.mkdir()
    for step in range(1, 5):  # the ring has wrapped: the next save also drops segments
        save_with_replay(base, step)
    survived = set()

    def attempt(run: Path, k: int) -> bool:
        faulty = FaultyDisk(k)
        try:
            with installed(faulty):
                save_with_replay(run, 5)
        except Crash:
            newest = check_replay(run)
            assert newest in (4, 5)
            survived.add(newest)
            save_with_replay(run, newest + 1)
            assert check_replay(run) == newest + 1
            return False
        return True

    points = every_point(base, attempt)
    assert survived == {4, 5}
    record_property("figure", f"{points} of {points} crash points recovered, replay equal")


@pytest.mark.faults
def test_a_process_that_ends_at_every_change_of_a_replay_segment_loses_nothing(
    quick_path: Path, record_property: Any
) -> None:
    base = quick_path / "base"
    base.mkdir()
    for step in range(1, 5):
        save_with_replay(base, step)
    survived = set()

    def attempt(run: Path, k: int) -> bool:
        if ended_at(k, lambda: save_with_replay(run, 5)):
            newest = check_replay(run)
            assert newest in (4, 5)
            survived.add(newest)
            save_with_replay(run, newest + 1)
            assert check_replay(run) == newest + 1
            return False
        assert check_replay(run) == 5
        return True

    points = every_point(base, attempt)
    assert survived == {4, 5}
    record_property("figure", f"{points} of {points} ended processes recovered, replay equal")


@pytest.mark.faults
def test_a_power_cut_at_every_change_of_a_replay_segment_loses_nothing(quick_path: Path, record_property: Any) -> None:
    base = quick_path / "base"
    base.mkdir()
    for step in range(1, 5):
        save_with_replay(base, step)
    rng, cuts = np.random.default_rng(0), 0

    def attempt(run: Path, k: int) -> bool:
        nonlocal cuts
        done = False
        for keep in (0.0, 0.5):
            whole = run.parent / "whole"
            shutil.rmtree(whole, ignore_errors=True)
            shutil.copytree(run, whole, symlinks=True)
            disk = PowerCut(whole, k)
            try:
                with installed(disk):
                    save_with_replay(whole, 5)
                done = True
            except Crash:
                pass
            disk.restore(rng, keep)
            cuts += 1
            assert check_replay(whole) in ((5,) if done else (4, 5))
        return done

    every_point(base, attempt)
    record_property("figure", f"{cuts} of {cuts} power cuts recovered, replay equal")


def test_a_failed_save_prunes_nothing_and_space_is_bounded(quick_path: Path) -> None:
    run = prepared(quick_path, 3)
    names = sorted(path.name for path in (run / "checkpoints").glob("step_*"))
    for k in (5, 10, 15):
        with installed(FaultyDisk(k, NO_SPACE)), pytest.raises(OSError, match="No space"):
            save(run, 9)
        assert sorted(path.name for path in (run / "checkpoints").glob("step_*")) == names
    for step in range(10, 60):
        save(run, step)
        assert len(list((run / "checkpoints").glob("step_*"))) <= 3  # two last and the best


def test_the_shim_itself_can_lose(quick_path: Path) -> None:
    """A save that forgets a sync does not pass: the layer is not blind."""
    run = quick_path / "run"
    run.mkdir()
    disk = PowerCut(run)
    for name, synced in {"careful": True, "nameless": True, "careless": False}.items():
        with disk.create(run / name) as file:
            file.write(name.encode())
            if synced:
                disk.sync(file)
        if name == "careful":
            disk.sync_path(run)
    disk.replace(run / "careless", run / "renamed")
    disk.restore(np.random.default_rng(0), 0.0)
    assert {path.name: path.read_text() for path in run.iterdir()} == {"careful": "careful"}
