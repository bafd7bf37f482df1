"""Where the time goes and what the run takes of the machine: figures beside the learning, never part of it."""

from __future__ import annotations

import sys
import timeit
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from retrograd import cli
from retrograd.tracking.csv import TIME_COLUMNS, read_csv
from retrograd.tracking.system import SYSTEM_COLUMNS, SystemMonitor
from retrograd.training.timing import PHASES, REST, PhaseTimer

SMALL = [
    "env=cartpole",
    "training.total_env_frames=1200",
    "training.log_every_steps=400",
    "training.num_envs=4",
    "training.light_eval_every_frames=800",
    "eval.light_episodes=1",
    "eval.full_episodes=1",
    "eval.record_video=false",
    "hardware.torch_threads=1",
]
AGENTS = {
    "dqn": ["agent=dqn", "replay.capacity=2000", "training.warmup_random_steps=200", "agent.batch_size=8"],
    "ppo": ["agent=ppo", "agent.rollout_steps=16"],
}


def test_each_lap_is_put_down_to_its_phase():
    now = [0.0]
    timer = PhaseTimer(clock=lambda: now[0])
    for phase, seconds in [("act", 1.0), ("emulate", 2.0), (REST, 100.0), ("act", 4.0), ("update", 8.0)]:
        now[0] += seconds
        timer.lap(phase)
    assert timer.take() == {"emulate_seconds": 2.0, "act_seconds": 5.0, "update_seconds": 8.0}
    assert timer.take() == {}


@pytest.mark.parametrize("agent", AGENTS)
def test_a_run_logs_its_phases_and_its_machine(agent, tmp_path):
    """REQ EXP-8: throughput split by phase, processor and memory; the parts fit into the whole."""
    command = ["train", *SMALL, *AGENTS[agent], f"output_dir={tmp_path}", "run_name=x"]
    assert cli.main(command) == 0
    rows = read_csv(tmp_path / "x" / "update_log.csv")
    assert len(rows) == 3
    header = (tmp_path / "x" / "update_log.csv").read_text().splitlines()[0].split(",")
    times = [name for name in TIME_COLUMNS if not name.startswith("gpu")]
    assert header[-len(times) :] == times
    wall_before = 0.0
    for row in rows:
        assert row["act_seconds"] > 0.0
        assert row["emulate_seconds"] > 0.0
        parts = sum(row[f"{phase}_seconds"] or 0.0 for phase in PHASES)
        assert parts < row["wall_seconds"] - wall_before  # evaluation games are nobody's phase
        wall_before = row["wall_seconds"]
        assert row["cpu_percent"] >= 0.0
        assert 0.01 < row["memory_gb"] < 100.0
    assert rows[-1]["update_seconds"] > 0.0


def test_without_a_gpu_there_are_no_gpu_figures():
    assert set(SystemMonitor().sample()) == {"cpu_percent", "memory_gb"}


def nvml(fails_at: str | None = None) -> ModuleType:
    """A stand-in for NVIDIA's library with one GPU; ``fails_at`` names the call that raises."""

    class NVMLError(Exception):
        pass

    def answer(name: str, value: object) -> object:
        def call(*_: object) -> object:
            if name == fails_at:
                raise NVMLError(name)
            return value

        return call

    module = ModuleType("pynvml")
    module.NVMLError = NVMLError
    for name, value in {
        "nvmlInit": None,
        "nvmlDeviceGetHandleByUUID": "handle",
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=37, memory=5),
        "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2_500_000_000, total=8_000_000_000),
    }.items():
        setattr(module, name, answer(name, value))
    return module


def test_gpu_figures_come_from_nvml(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    figures = SystemMonitor("GPU-1").sample()
    assert (figures["gpu_percent"], figures["gpu_memory_gb"]) == (37.0, 2.5)
    assert set(figures) == set(SYSTEM_COLUMNS)


def test_a_run_on_a_gpu_says_which_extra_its_figures_need(monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert set(SystemMonitor("GPU-1").sample()) == {"cpu_percent", "memory_gb"}
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "retrograd[gpu]" in caplog.text


@pytest.mark.parametrize("call", ["nvmlInit", "nvmlDeviceGetHandleByUUID", "nvmlDeviceGetUtilizationRates"])
def test_a_silent_gpu_is_left_out(monkeypatch, call):
    monkeypatch.setitem(sys.modules, "pynvml", nvml(fails_at=call))
    assert set(SystemMonitor("GPU-1").sample()) == {"cpu_percent", "memory_gb"}


def test_a_gpu_that_goes_away_ends_its_figures_not_the_run(monkeypatch, caplog):
    module = nvml()
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monitor = SystemMonitor("GPU-1")
    monkeypatch.setattr(module, "nvmlDeviceGetMemoryInfo", nvml("nvmlDeviceGetMemoryInfo").nvmlDeviceGetMemoryInfo)
    assert set(monitor.sample()) == {"cpu_percent", "memory_gb"}
    monitor.sample()
    assert len(caplog.records) == 1


def test_the_timer_costs_next_to_nothing():
    """A lap is one look at the clock: it must stay far below the milliseconds of a vector step, busy machine or not."""
    timer = PhaseTimer()
    seconds = min(timeit.repeat(lambda: timer.lap("act"), number=1_000, repeat=5)) / 1_000
    assert seconds < 10e-6


def test_files_of_equal_runs_differ_in_time_columns_alone(tmp_path: Path):
    """REQ RUN-9"""
    for name in ("a", "b"):
        assert cli.main(["train", *SMALL, *AGENTS["dqn"], f"output_dir={tmp_path}", f"run_name={name}"]) == 0
    first, second = (read_csv(tmp_path / name / "update_log.csv") for name in ("a", "b"))
    differing = {key for one, two in zip(first, second, strict=True) for key in one if one[key] != two[key]}
    assert differing
    assert differing <= set(TIME_COLUMNS)
