"""Whole runs on a machine that misbehaves: disks that fill up, signals, too little memory, clocks that jump.

REQ RUN-4, RUN-11; rows A3, A4, D8 to D10 and D13 of the reliability list.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from injection import NO_SPACE, FaultyDisk, installed

from retrograd import cli
from retrograd.build import build_trainer, resume_trainer
from retrograd.config import ConfigManager
from retrograd.core.errors import InUseError, ResourceError
from retrograd.tracking.csv import read_csv
from retrograd.training.checkpoint import load_newest
from retrograd.training.lock import RunLock
from retrograd.training.resources import MemoryWatch
from retrograd.training.trainer import Trainer

TINY = [
    "env=cartpole",
    "agent=dqn",
    "training.num_envs=2",
    "training.total_env_frames=2000",
    "training.warmup_random_steps=100",
    "training.log_every_steps=100",
    "training.light_eval_every_frames=null",
    "training.full_eval_every_frames=null",
    "checkpoint.every_frames=200",
    "agent.replay_start_size=100",
    "agent.batch_size=8",
    "replay.capacity=1000",
    "eval.full_episodes=2",
    "eval.num_envs=1",
    "eval.record_video=false",
    "hardware.torch_threads=1",
    "hardware.device=cpu",
]


def make(folder: Path, *overrides: str) -> Trainer:
    words = [*TINY, f"output_dir={folder}", "run_name=run", *overrides]
    return build_trainer(ConfigManager(None).compose(words), quiet=True)


class Weather(FaultyDisk):
    """A disk that is full from step ``begin`` of the run until ``end``."""

    def __init__(self, trainer: Trainer, begin: int, end: int) -> None:
        super().__init__()
        self._trainer, self._begin, self._end = trainer, begin, end

    def before(self, operation: str, path: Path) -> None:
        if self._begin <= self._trainer.run.step < self._end and operation in ("open", "write", "mkdir"):
            NO_SPACE(operation, path)


def advance_to(trainer: Trainer, step: int) -> None:
    while trainer.run.step < step and trainer.advance():
        trainer._writer._thread and trainer._writer._thread.join()  # saves end at once: the test is about their outcome


def test_a_disk_that_is_full_for_a_while_costs_nothing(quick_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trainer = make(quick_path)
    with installed(Weather(trainer, 390, 700)):
        advance_to(trainer, 380)
        assert load_newest(trainer.folder).step == 200
        advance_to(trainer, 690)
        assert load_newest(trainer.folder).step == 200  # two saves have failed
        errors = [record for record in caplog.records if "could not be saved" in record.message]
        assert [record.levelno for record in errors] == [logging.ERROR]
        trainer.train()
    trainer.close()
    assert "can be saved again, after 2 failed" in caplog.text
    assert load_newest(trainer.folder).step == 2000
    assert [row["step"] for row in read_csv(trainer.folder / "update_log.csv")] == list(range(100, 2001, 100))
    assert not list((trainer.folder / "checkpoints").glob(".tmp*"))


def test_the_third_failed_save_ends_the_run(quick_path: Path, record_property: Any) -> None:
    trainer = make(quick_path)
    with (
        installed(Weather(trainer, 390, 10**9)),
        pytest.raises(ResourceError, match=r"3 checkpoints in a row .*No space left on device") as ended,
    ):
        advance_to(trainer, 2000)
    trainer.close()
    assert ended.value.exit_code == 6
    assert trainer.run.step in range(800, 1010)
    assert load_newest(trainer.folder).step == 200
    record_property("figure", "training went on after 2 failed saves, ended at the 3rd, last good checkpoint intact")


def test_a_save_that_fails_leaves_no_video(quick_path: Path) -> None:
    words = ["training.full_eval_every_frames=200", "checkpoint.every_frames=null", "training.total_env_frames=600"]
    trainer = make(quick_path, *words, "eval.full_episodes=1")
    trainer.record_video = True
    trainer.judge = Filming(trainer.judge)
    with installed(Weather(trainer, 390, 590)):
        trainer.train()
    trainer.close()
    assert [path.name for path in sorted((trainer.folder / "checkpoints").glob("step_*"))] == [
        "step_000000200",
        "step_000000600",
    ]
    assert not list(trainer.folder.glob(".*video*"))


class Filming:
    """A judge whose videos take no encoder."""

    def __init__(self, judge: Any) -> None:
        self.evaluate = judge.evaluate

    def record(self, path: Path, *, step: int) -> None:
        path.write_bytes(b"moving pictures")


def test_a_run_short_of_memory_saves_and_leaves(quick_path: Path) -> None:
    trainer = make(quick_path)
    left = iter([50] * 3 + [1] * 1000)
    ticks = iter(range(10**6))
    trainer._memory = MemoryWatch(0.97, read=lambda: (next(left), 100), clock=lambda: float(next(ticks)))
    with pytest.raises(ResourceError, match=r"memory are in use, more than .* saved as step_\d+, to go on: retrograd"):
        trainer.train()
    trainer.close()
    assert load_newest(trainer.folder).step == trainer.run.step > 0


def test_a_disk_too_small_is_refused_before_anything_is_written(
    quick_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    assert cli.main(["train", *TINY, f"output_dir={quick_path / 'out'}", "run_name=run"]) == 2
    assert "GB free and the run needs" in capsys.readouterr().err
    assert not (quick_path / "out" / "run").exists()


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_a_clock_that_is_moved_changes_nothing(jump: float, quick_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the wall clock of the machine jumps: no negative duration, no early end, the same rows."""
    trainer = make(quick_path, "training.total_env_frames=600")
    real = time.time
    advance_to(trainer, 300)
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    trainer.train()
    trainer.close()
    rows = read_csv(trainer.folder / "update_log.csv")
    seconds = [row["wall_seconds"] for row in rows]
    assert [row["step"] for row in rows] == list(range(100, 601, 100))
    assert seconds == sorted(seconds)
    assert 0 < seconds[-1] < 3600
    assert all(row["steps_per_second"] > 0 for row in rows)


def test_a_signal_in_an_evaluation_does_not_wait_for_its_games(quick_path: Path) -> None:
    """The evaluation is owed, and played after going on with the random numbers it would have had."""
    words = ["training.light_eval_every_frames=300", "eval.light_episodes=5", "training.total_env_frames=600"]
    trainer = make(quick_path, *words)
    act, calls = trainer.agent.act, []

    def interrupted(obs: Any, state: Any = None, *, step: int, explore: bool) -> Any:
        calls.append(explore)
        if not explore and calls.count(False) == 3:
            trainer.run.stop_requested = True
        return act(obs, state, step=step, explore=explore)

    trainer.agent.act = interrupted  # type: ignore[method-assign]
    assert trainer.train()["stopped_at_step"] == 300
    trainer.close()
    assert calls.count(False) == 3
    resumed = resume_trainer(trainer.folder, quiet=True).trainer
    resumed.train()
    resumed.close()
    (quick_path / "other").mkdir()
    whole = make(quick_path / "other", *words)
    whole.train()
    whole.close()
    assert read_csv(trainer.folder / "eval_log.csv") == read_csv(whole.folder / "eval_log.csv")


def start(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    words = [*TINY, f"output_dir={folder}", *overrides]
    command = [sys.executable, "-m", "retrograd", "train", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(path: Path, process: subprocess.Popen[str], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not path.exists():
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.faults
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_to_a_real_process(number: signal.Signals, code: int, quick_path: Path, record_property: Any) -> None:
    """SIGUSR1 saves and the run goes on; then the other one ends it with a checkpoint, within seconds."""
    words = ["training.total_env_frames=100000000", "checkpoint.every_frames=null", "run_name=run"]
    process = start(quick_path, *words)
    wait_for(quick_path / "run" / "update_log.csv", process)
    process.send_signal(signal.SIGUSR1)
    wait_for(quick_path / "run" / "checkpoints" / "latest", process)
    first = load_newest(quick_path / "run").step
    begun = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    took = time.monotonic() - begun
    assert process.returncode == code, err
    assert took < 20
    assert load_newest(quick_path / "run").step == json.loads(out)["stopped_at_step"] > first
    assert f"{number.name}: saving a checkpoint" in err
    record_property("figure", f"saved and left {took:.1f} s after {number.name}, exit code {code}")


@contextmanager
def team(folder: Path, agent: str) -> Iterator[subprocess.Popen[str]]:
    """Two workers and the first process, at work in a group of their own, of which nobody is left in the end."""
    own = [word for word in TINY if word.split(".")[0] in ("env=cartpole", "eval", "hardware") or "_eval_" in word]
    words = [*own, f"agent={agent}", "agent.workers=2", "training.num_envs=1", "training.log_every_steps=100"]
    words += ["training.total_env_frames=100000000", "checkpoint.every_frames=null", f"output_dir={folder}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "retrograd", "train", *words, "run_name=run"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(folder / "run" / "update_log.csv", process)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.faults
@pytest.mark.parametrize(("agent", "number"), [("a3c", signal.SIGINT), ("impala", signal.SIGTERM)])
def test_signals_to_a_whole_group(agent: str, number: signal.Signals, quick_path: Path, record_property: Any) -> None:
    """As a terminal and a cluster send them: workers go on after SIGUSR1, and the run is saved after the other one."""
    with team(quick_path, agent) as process:
        os.killpg(process.pid, signal.SIGUSR1)
        wait_for(quick_path / "run" / "checkpoints" / "latest", process)
        first = load_newest(quick_path / "run").step
        begun = time.monotonic()
        os.killpg(process.pid, number)
        out, err = process.communicate(timeout=60)
        took = time.monotonic() - begun
    assert process.returncode == 128 + number, err
    assert "Traceback" not in err
    assert load_newest(quick_path / "run").step == json.loads(out)["stopped_at_step"] > first
    record_property("figure", f"{agent} saved and left {took:.1f} s after {number.name} to its group")


@pytest.mark.faults
@pytest.mark.parametrize("agent", ["a3c", "impala"])
def test_no_worker_outlives_a_killed_learner(agent: str, quick_path: Path, record_property: Any) -> None:
    """Not even those of IMPALA that wait for it, with all they can hold played: as while it is stopped here."""
    with team(quick_path, agent) as process:
        learner = psutil.Process(process.pid)
        workers = [child for child in learner.children() if "spawn_main" in " ".join(child.cmdline())]
        assert len(workers) == 2
        learner.suspend()
        before, now = None, [worker.cpu_times() for worker in workers]
        while agent == "impala" and before != now:
            time.sleep(0.3)
            before, now = now, [worker.cpu_times() for worker in workers]
        begun = time.monotonic()
        learner.kill()
        while any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers):
            assert time.monotonic() - begun < 10
            time.sleep(0.02)
        took = time.monotonic() - begun
        assert "Traceback" not in process.communicate()[1]
    record_property("figure", f"workers of {agent} were gone {took:.1f} s after their learner was killed")


@pytest.mark.faults
@pytest.mark.parametrize("slow", ["update", "save"])
def test_a_second_signal_waits_for_nothing(slow: str, quick_path: Path, record_property: Any) -> None:
    """The first one waits for what is under way; the second gives up on it, and what was saved before is good."""
    script, mark, run = Path(__file__).with_name("slow_run.py"), quick_path / "mark", quick_path / "run"
    words = [*TINY, f"output_dir={quick_path}", "run_name=run", "training.total_env_frames=100000000"]
    command = [sys.executable, str(script), slow, str(mark), "train", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(mark, process)
        process.send_signal(signal.SIGINT)
        time.sleep(1.0)
        assert process.poll() is None
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        took = time.monotonic() - begun
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "stopped at once" in err
    assert "Traceback" not in err
    assert load_newest(run, with_replay=True).step == 200
    resumed = resume_trainer(run, {"training.total_env_frames": 600}, quiet=True).trainer
    resumed.train()
    resumed.close()
    assert load_newest(run, with_replay=True).step == 600
    assert [row["step"] for row in read_csv(run / "update_log.csv")] == list(range(100, 601, 100))
    record_property("figure", f"left {took:.1f} s after a second SIGINT in a {slow} of a minute, code 130, resumed")


@pytest.mark.faults
def test_a_folder_stays_locked_while_something_is_written_to_it(quick_path: Path) -> None:
    """Whoever leaves at once leaves a thread behind that still writes: until it ends nobody else may begin."""
    trainer, disk_answers = make(quick_path), threading.Event()
    trainer._writer.submit(lambda: quick_path / str(disk_answers.wait()))
    trainer.abandon()
    begun = time.monotonic()
    trainer.close()
    assert time.monotonic() - begun < 30
    with pytest.raises(InUseError, match=f"in use by process {os.getpid()}"):
        RunLock(trainer.folder)
    disk_answers.set()
    assert trainer._writer._thread is not None
    trainer._writer._thread.join()
    trainer.close()
    RunLock(trainer.folder).release()


@pytest.mark.faults
def test_two_starts_on_one_folder_have_one_winner(quick_path: Path, record_property: Any) -> None:
    """Row D8: the folder of a run belongs to one process, and a killed one leaves it free."""
    trainer = make(quick_path, "training.total_env_frames=400")
    trainer.train()
    trainer.close()
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from retrograd.core.errors import InUseError\n"
        "from retrograd.training.lock import RunLock\n"
        "sys.stdin.readline()\n"
        "try:\n"
        "    lock = RunLock(Path(sys.argv[1]))\n"
        "except InUseError as error:\n"
        "    print('lost', error, flush=True)\n"
        "else:\n"
        "    print('won', flush=True)\n"
        "sys.stdin.readline()\n"
        "import os; os._exit(9)\n"
    )
    for _ in range(20):
        rivals = [
            subprocess.Popen(
                [sys.executable, "-c", code, str(trainer.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for rival in rivals:
            assert rival.stdin is not None
            rival.stdin.write("go\n")
            rival.stdin.flush()
        answers = [rival.stdout.readline() for rival in rivals if rival.stdout is not None]
        assert sorted(answer.split()[0] for answer in answers) == ["lost", "won"]
        loser = next(answer for answer in answers if answer.startswith("lost"))
        assert str(rivals[answers.index(next(a for a in answers if a.startswith("won")))].pid) in loser
        for rival in rivals:
            rival.communicate("end\n", timeout=30)
    record_property("figure", "20 of 20 pairs had one winner; the loser named its process")


@pytest.mark.faults
def test_a_file_system_filled_during_a_save(tmp_path: Path, record_property: Any) -> None:
    """A 64 MB file system of its own, where mounting is allowed."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        trainer = make(place)
        advance_to(trainer, 380)
        free = os.statvfs(place).f_bavail * os.statvfs(place).f_frsize
        (place / "ballast").write_bytes(bytes(free - 20_000))
        advance_to(trainer, 690)
        assert load_newest(trainer.folder).step == 200
        (place / "ballast").unlink()
        trainer.train()
        trainer.close()
        assert load_newest(trainer.folder).step == 2000
        assert [row["step"] for row in read_csv(trainer.folder / "update_log.csv")] == list(range(100, 2001, 100))
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
    record_property("figure", "64 MB file system full at two saves: went on, saved again, no row lost")


@pytest.mark.faults
def test_fifty_workers_killed(record_property: Any) -> None:
    """Row D5: each costs its row an episode and nothing else."""
    from functools import partial

    import numpy as np

    from retrograd.envs.toys.chains import Counter
    from retrograd.envs.vector import GymVec
    from retrograd.envs.watchdog import Patience

    rng = np.random.default_rng(0)
    env = GymVec(
        [partial(Counter, 50)] * 4,
        seed=0,
        name="counter",
        workers=True,
        patience=Patience(worker_restarts_per_hour=100),
    )
    slowest, cut = 0.0, 0
    while env.restarts < 50:
        victim = env._env._workers[int(rng.integers(4))].process  # type: ignore[union-attr]
        os.kill(victim.pid, signal.SIGKILL)
        begun = time.monotonic()
        env.send(np.zeros(4, np.int64))
        step = env.recv()
        slowest = max(slowest, time.monotonic() - begun)
        cut += int((step.truncated & (step.reward == 0)).sum())
    env.close()
    assert cut == 50
    record_property("figure", f"50 of 50 workers replaced, 50 episodes cut, slowest restart {slowest:.1f} s")
