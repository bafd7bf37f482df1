"""Two whole commands started on one run folder at once: one of them works, the other leaves without a trace.

REQ RUN-11, row D8. The winner has far too large a budget and is stopped once the loser has left, so that which of the
two comes first is all that is left to chance.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from retrograd.core.errors import InUseError, UsageError
from retrograd.tracking.csv import read_csv
from retrograd.training.checkpoint import load_newest

LONG = [
    "env=cartpole", "agent=dqn", "training.num_envs=2", "training.total_env_frames=100000000",
    "training.warmup_random_steps=100", "training.log_every_steps=100", "training.light_eval_every_frames=null",
    "training.full_eval_every_frames=null", "checkpoint.every_frames=200", "agent.replay_start_size=100",
    "agent.batch_size=8", "replay.capacity=1000", "hardware.torch_threads=1", "hardware.device=cpu",
]  # fmt: skip
PATIENCE_SECONDS = 600.0


class Rival:
    """One of two equal commands; what it says goes to a file, so that no pipe can fill up."""

    def __init__(self, words: list[str], said: Path) -> None:
        self._said = said
        with said.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "retrograd", *words], stdout=subprocess.DEVNULL, stderr=file
            )

    @property
    def said(self) -> str:
        return self._said.read_text(errors="replace")

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None


def wait_until(condition: Callable[[], bool], rivals: list[Rival]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, [rival.said for rival in rivals]
        time.sleep(0.02)


def logged_steps(run: Path) -> list[int]:
    path = run / "update_log.csv"
    return [int(row["step"]) for row in read_csv(path)] if path.exists() else []


def compete(words: list[str], run: Path, place: Path, begun_step: int) -> tuple[Rival, Rival]:
    """Start two, wait for the loser to leave and for the winner to get somewhere, stop the winner; loser and winner."""
    rivals = [Rival(words, place / f"rival-{number}.txt") for number in range(2)]
    try:
        wait_until(lambda: any(rival.ended for rival in rivals), rivals)
        loser, winner = sorted(rivals, key=lambda rival: not rival.ended)
        wait_until(lambda: winner.ended or max(logged_steps(run), default=0) > begun_step + 200, rivals)
        assert not winner.ended, (loser.said, winner.said)
        winner.process.send_signal(signal.SIGTERM)
        assert winner.process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM, winner.said
    finally:
        for rival in rivals:
            rival.process.kill()
            rival.process.wait()
    return loser, winner


def check_run(run: Path) -> int:
    """Every step was logged once, none is missing, and the newest checkpoint is whole; its step."""
    saved = load_newest(run, with_replay=True)
    assert logged_steps(run) == list(range(100, saved.step + 1, 100))
    assert (run / ".lock").read_text() == ""
    assert not list((run / "checkpoints").glob(".*"))
    return saved.step


@pytest.mark.faults
@pytest.mark.timeout(3600)  # forty processes, on whatever machine
def test_two_resumes_have_one_winner(quick_path: Path, record_property: Any) -> None:
    run = quick_path / "run"
    first = Rival(["train", *LONG, f"output_dir={quick_path}", "run_name=run"], quick_path / "first.txt")
    wait_until(lambda: first.ended or (run / "checkpoints" / "latest").exists(), [first])
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM, first.said
    step = check_run(run)
    unchanged = {name: (run / name).read_bytes() for name in ("versions.json", ".hydra/config.yaml")}
    for attempt in range(1, 11):
        loser, winner = compete(["resume", str(run)], run, quick_path, step)
        assert loser.process.returncode == InUseError.exit_code, loser.said
        holders = (f"process {winner.process.pid} on ", "another process;")  # the latter has not said its name yet
        assert any(f"{run} is in use by {holder}" in loser.said for holder in holders), loser.said
        resumes = [json.loads(line) for line in (run / "resumes.jsonl").read_text().splitlines()]
        assert len(resumes) == attempt
        assert resumes[-1]["step"] == step  # it went on from where the winner before it was stopped
        step = check_run(run)
    assert {name: (run / name).read_bytes() for name in unchanged} == unchanged
    ends = f"10 of 10 pairs had one winner, the others left with {InUseError.exit_code}"
    record_property("figure", f"{ends}; {step // 100} logged steps once each")


@pytest.mark.faults
@pytest.mark.timeout(3600)  # forty processes, on whatever machine
def test_two_trainings_of_one_name_have_one_winner(quick_path: Path, record_property: Any) -> None:
    outputs = quick_path / "outputs"
    for attempt in range(10):
        run = outputs / f"run{attempt}"
        loser, _ = compete(["train", *LONG, f"output_dir={outputs}", f"run_name={run.name}"], run, quick_path, 0)
        assert loser.process.returncode == UsageError.exit_code, loser.said
        assert f"the output folder {run} exists already; choose another run_name or remove it" in loser.said
        check_run(run)
        assert not (run / "resumes.jsonl").exists()
    assert len(list(outputs.iterdir())) == 10
    record_property("figure", f"10 of 10 pairs had one winner, the others left with {UsageError.exit_code}")
