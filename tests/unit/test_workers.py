"""Workers that crash, raise, hang or are killed: their row begins anew, the others never notice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrograd.core.errors import RetrogradError
from retrograd.core.types import EnvStep
from retrograd.envs.toys.chains import Counter
from retrograd.envs.vector import GymVec
from retrograd.envs.watchdog import Patience
from retrograd.envs.workers import WorkerRows


def faulty(fault: str, mark: Path, *, at: int = 6) -> Any:
    """An environment that fails once, at its ``at``-th step or first reset; the file ``mark`` remembers that it did."""

    class Faulty(Counter):  # made here: a worker cannot import this module
        steps = 0

        def reset(self, **options: Any) -> Any:
            if fault == "in reset":
                self._fail()
            return super().reset(**options)

        def step(self, action: Any) -> Any:
            self.steps += 1
            if self.steps == at and fault != "in reset":
                self._fail()
            return super().step(action)

        def _fail(self) -> None:
            if mark.exists():
                return
            mark.touch()
            if fault == "hang":
                time.sleep(60)
            elif fault == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            elif fault == "exits":
                os._exit(3)
            raise RuntimeError("the game is broken")

    return partial(Faulty, 5)


def play(env: GymVec, steps: int) -> list[EnvStep]:
    seen = []
    for _ in range(steps):
        env.send(np.zeros(env.num_envs, np.int64))
        seen.append(env.recv())
    return seen


@pytest.mark.parametrize("fault", ["raises", "exits", "killed", "hang"])
def test_a_failed_worker_costs_its_own_episode_only(fault: str, tmp_path: Path) -> None:
    """REQ RUN-4's neighbor: row 1 fails in its second game, rows 0 and 2 play on as if nothing had been."""
    patience = Patience(worker_timeout_seconds=4.0 if fault == "hang" else 30.0)
    makers = [partial(Counter, 5), faulty(fault, tmp_path / "failed"), partial(Counter, 5)]
    env = GymVec(makers, seed=0, name="counter", workers=True, patience=patience)
    before = env.observe()
    steps = play(env, 10)
    begun = time.monotonic()
    assert env.restarts == 1
    cut = steps[5]
    assert cut.truncated.tolist() == [False, True, False]
    assert cut.reset.tolist() == [False, True, False]
    assert not cut.terminated.any()
    assert (cut.reward[1], cut.next_obs[1], cut.episodes) == (0.0, steps[4].obs[1], ())
    assert steps[6].next_obs[1] == cut.obs[1] + 1  # a new game
    reference = GymVec([partial(Counter, 5)] * 3, seed=0, name="counter")
    for one, other in zip(steps, play(reference, 10), strict=True):
        assert np.array_equal(one.next_obs[::2], other.next_obs[::2])
    assert before.shape == cut.next_obs.shape
    env.close()
    assert time.monotonic() - begun < 20


def test_rows_saved_after_a_restart_come_back(tmp_path: Path) -> None:
    env = GymVec([faulty("raises", tmp_path / "failed"), partial(Counter, 5)], seed=0, name="counter", workers=True)
    play(env, 13)
    assert env.restarts == 1
    other = GymVec([partial(Counter, 5)] * 2, seed=9, name="counter")
    other.restore(env.snapshot())
    for one, two in zip(play(env, 7), play(other, 7), strict=True):
        assert np.array_equal(one.obs, two.obs)
        assert one.episodes == two.episodes
    env.close()


def test_a_worker_lost_in_reset_begins_again(tmp_path: Path) -> None:
    env = GymVec([faulty("in reset", tmp_path / "failed")], seed=0, name="counter", workers=True)
    assert env.restarts == 1
    play(env, 6)
    env.close()


def test_too_many_failures_stop_the_run_with_the_last_reason(tmp_path: Path) -> None:
    patience = Patience(worker_restarts_per_hour=0)
    env = GymVec([faulty("raises", tmp_path / "failed")], seed=0, name="counter", workers=True, patience=patience)
    with pytest.raises(RetrogradError, match=r"(?s)row 0 of counter failed, and 0 restarts.*the game is broken"):
        play(env, 7)
    env.close()


def test_a_program_that_was_stopped_for_an_hour_loses_no_row() -> None:
    """Ctrl-Z: the clock runs on, and the workers answer after that."""
    now = [0.0]

    def clock() -> float:
        now[0] += 3600.0
        return now[0]

    makers = [partial(Counter, 5)] * 2
    rows = WorkerRows(makers, name="counter", timeout_seconds=60.0, restarts_per_hour=10, clock=clock)
    assert not rows.reset(np.ones(2, bool), np.arange(2), unseeded=-1).lost.any()
    rows.step_async(np.zeros(2, np.int64))
    assert not rows.step_wait().lost.any()
    rows.close()


def test_rows_that_nobody_closed_do_not_keep_a_program_from_ending() -> None:
    """Whatever else has to be tidied up at the end, and however early that was known."""
    code = (
        "import tempfile; early = tempfile.TemporaryDirectory()\n"
        "from functools import partial\n"
        "from retrograd.envs.toys.chains import Counter\n"
        "from retrograd.envs.vector import GymVec\n"
        "env = GymVec([partial(Counter, 5)] * 2, seed=0, name='counter', workers=True)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    env = GymVec([partial(Counter, 5)] * 2, seed=0, name="counter", workers=True)
    pids = [worker.process.pid for worker in env._env._workers]  # type: ignore[union-attr]
    os.kill(pids[0], signal.SIGINT)  # these go to the whole group: workers leave them to the first process
    os.kill(pids[1], signal.SIGTERM)
    os.kill(pids[1], signal.SIGUSR1)
    play(env, 3)
    assert env.restarts == 0
    env.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
