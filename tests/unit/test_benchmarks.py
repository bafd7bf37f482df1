"""The benchmark scripts' own logic, with made-up runs: ratios within a round, what fell, tables."""

from __future__ import annotations

import importlib.util
import json
import platform
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_finds_what_it_imports(name, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    try:
        assert load(name).__doc__  # what it is for
    except ModuleNotFoundError as error:  # those that make golden files need other libraries
        if (error.name or "").startswith("retrograd"):
            raise
        pytest.skip(f"needs {error.name}")


@pytest.fixture
def peers(tmp_path, monkeypatch):
    module = load("peers")
    monkeypatch.setattr(module, "RECORD", tmp_path / "recorded.json")
    return module


def quick(peers: ModuleType, monkeypatch: pytest.MonkeyPatch, speeds: dict[str, float]) -> int:
    def play(who: str, algorithm: str, contest: object, python: str | None) -> dict[str, float] | None:
        speed = speeds.get(f"{who} {algorithm}", speeds.get(who))
        return None if speed is None else {"steps_per_second": speed, "peak_gb": 1.0}

    monkeypatch.setattr(peers, "play", play)
    monkeypatch.setattr(sys, "argv", ["peers.py", "--quick"])
    code: int = peers.main()
    return code


USUAL = {"ours": 90.0, "limit": 100.0, "emulator": 100.0}


def test_the_quick_form_compares_with_the_record(peers, monkeypatch, capsys):
    assert quick(peers, monkeypatch, USUAL) == 2  # nothing was recorded
    assert "nothing has been recorded" in capsys.readouterr().err
    kept = {name: {"limit": 0.9, "emulator": 0.9} for name in ("dqn", "rainbow", "ppo", "null")}
    peers.RECORD.write_text(json.dumps({"another machine": kept}))
    assert quick(peers, monkeypatch, USUAL) == 2  # not here
    peers.RECORD.write_text(json.dumps({peers.machine(): kept}))
    assert quick(peers, monkeypatch, USUAL) == 0
    assert "nothing fell" in capsys.readouterr().out
    assert quick(peers, monkeypatch, USUAL | {"ours ppo": 70.0}) == 1
    assert "ppo: ours ÷ limit was 0.90, is 0.70" in capsys.readouterr().out


def test_a_fall_is_looked_at_again_before_it_is_told(peers, monkeypatch, capsys):
    peers.RECORD.write_text(json.dumps({peers.machine(): {"dqn": {"limit": 0.9}}}))
    speeds = iter([50.0, 90.0, 90.0])
    seen = []

    def play(who, algorithm, contest, python):
        seen.append((who, algorithm))
        speed = next(speeds) if (who, algorithm) == ("ours", "dqn") else USUAL.get(who)
        return None if speed is None else {"steps_per_second": speed, "peak_gb": 1.0}

    monkeypatch.setattr(peers, "play", play)
    monkeypatch.setattr(sys, "argv", ["peers.py", "--quick"])
    assert peers.main() == 0
    assert seen.count(("ours", "dqn")) == 3
    assert seen.count(("ours", "ppo")) == 1


def test_a_record_is_kept_beside_those_of_other_machines(peers):
    row = {"ours_over_this": 0.9}
    peers.RECORD.write_text(json.dumps({"another machine": {"dqn": {"limit": 0.5}}}))
    peers.record({"dqn": {"limit": row}, "ppo": {"sb3": row}})
    peers.record({"dqn": {"limit": {"ours_over_this": 0.8}}})
    here = {"dqn": {"limit": 0.8}, "ppo": {"sb3": 0.9}}
    assert peers.recorded() == {"another machine": {"dqn": {"limit": 0.5}}, peers.machine(): here}


def test_a_machine_is_told_by_its_processor(peers, monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "CPUINFO", tmp_path / "cpuinfo")
    assert platform.machine() in peers.machine()
    peers.CPUINFO.write_text("model name : Fast 1\ncpu family : 26\nmodel : 2\n\nmodel name : Fast 2\n")
    assert peers.machine().startswith("Fast 1 family 26 model 2, ")


def test_further_keys_are_for_our_runs_and_their_limits_alone(peers, monkeypatch):
    commands = {}

    def run(command, **_):
        commands[Path(command[1]).name, command[2]] = command[3:]
        return subprocess.CompletedProcess(command, 0, stdout=json.dumps({"steps_per_second": 1.0, "peak_gb": 1.0}))

    monkeypatch.setattr(peers.subprocess, "run", run)
    contest = replace(peers.CONTESTS["dqn"], ours=("hardware.autocast=native",))
    for who in ("ours", "limit", "sb3", "emulator"):
        assert peers.play(who, "dqn", contest, "python") is not None
    told = {key for key, words in commands.items() if words[-2:] == ["--set", "hardware.autocast=native"]}
    assert told == {("ours.py", "dqn"), ("ours.py", "limit_dqn")}
    assert len(commands) == 4


def test_overhead_takes_ratios_within_a_round(peers):
    overhead = load("overhead")
    rounds = {
        "emulator alone": [100.0, 1000.0],
        "ours, replay": [90.0, 500.0],
        "Stable-Baselines3, replay": [30.0, None],
        "ours, rollouts": [90.0, 900.0],
        "Stable-Baselines3, rollouts": [45.0, 450.0],
    }
    seen = {
        row: [None if speed is None else {"steps_per_second": speed, "peak_gb": 1.0} for speed in speeds]
        for row, speeds in rounds.items()
    }
    assert overhead.ratios(seen, "ours, replay", "emulator alone") == [0.5, 0.9]
    assert overhead.ratios(seen, "ours, replay", "Stable-Baselines3, replay") == [3.0]
    assert "0.70 (0.50 to 0.90)" in overhead.table(seen)
    verdicts = overhead.verdicts(seen)
    assert "ours, replay ÷ the emulator: 0.70, floor 0.85: NOT reached" in verdicts
    assert "ours, rollouts ÷ Stable-Baselines3, rollouts: 2.00, floor 2: reached" in verdicts


def test_scaling_refers_to_one_size_within_a_round(monkeypatch):
    scaling = load("scaling")
    cases = scaling.batches()
    speeds = {(case.size, number): 1000 / case.size * (1 + number) for case in cases for number in range(2)}
    count: dict[int, int] = {}

    def measure(case):
        count[case.size] = count.get(case.size, -1) + 1
        return speeds[case.size, count[case.size]]

    monkeypatch.setattr(scaling, "measure", measure)
    lines = scaling.rows(scaling.run(cases, 2))
    by_size = {line["size"]: line["ratio"] for line in lines}
    assert by_size[32] == 1.0
    assert by_size[64] == pytest.approx(0.5)
    assert "| dqn | 64 |" in scaling.table("batch", lines)


def test_scaling_asks_for_configs_that_exist():
    from retrograd.config import ConfigManager

    scaling = load("scaling")
    sys.path.insert(0, str(FOLDER / "contestants"))
    try:
        ours = load("contestants/ours")
    finally:
        sys.path.pop(0)
    for cases in scaling.tables(0).values():
        for case in cases:
            overrides = case.command[case.command.index("--set") + 1 :]
            config = ConfigManager(None).compose(["env=pong", *ours.SETTINGS[case.label], *overrides])
            assert config["env"]["name"] == "pong"


def test_a_full_replay_is_measured():
    scaling = load("scaling")
    for kind, verb in (("uniform", "add"), ("prioritized", "sample")):
        assert scaling.measure_replay(kind, verb, 400, seconds=0.02)["steps_per_second"] > 0


@pytest.fixture
def minatar():
    return load("minatar")


def finish(job, score: float) -> None:
    """What a run leaves that has reached its end."""
    job.folder.mkdir(parents=True)
    final = {"mean_return": score, "std_return": 1.0, "episodes": 100}
    (job.folder / "summary.json").write_text(json.dumps({"step": 1000, "wall_seconds": 2.0, "final": final}))
    (job.folder / "versions.json").write_text(json.dumps({"git": {"commit": "0123456789abcdef", "dirty": False}}))


def test_exploration_falls_over_half_of_every_minatar_run(minatar):
    from retrograd.config import ConfigManager

    options = minatar.parse(["--games", "freeway", "--seeds", "1", "--frames", "3000"])
    for job in minatar.jobs_for(options):
        config = ConfigManager(None).compose(job.command()[4:])  # what follows "train"
        assert config["env"]["name"] == "minatar_freeway"
        assert config["eval"]["full_episodes"] == 100
        if job.agent != "random":
            assert config["training"]["total_env_frames"] == 3000
            assert config["preset"]["epsilon_decay_frames"] == 1500


def test_minatar_runs_what_is_not_recorded_and_draws_the_table_from_the_record(minatar, tmp_path, monkeypatch):
    words = ["--games", "breakout", "--agents", "dqn", "--seeds", "3", "--frames", "2000"]
    places = [
        "--output",
        str(tmp_path / "runs"),
        "--record",
        str(tmp_path / "r.jsonl"),
        "--page",
        str(tmp_path / "p.md"),
    ]
    options = minatar.parse([*words, *places])
    jobs, ran = minatar.jobs_for(options), []
    random, first, second, third = jobs
    finish(first, 4.0)  # by a process that was stopped before it recorded it

    def run(job) -> float:
        if job is third:
            raise RuntimeError("lost")
        ran.append(job)
        finish(job, {"random": 1.0}.get(job.agent, 6.0))
        return 1.0

    monkeypatch.setattr(minatar.Job, "run", run)
    assert minatar.work(jobs, minatar.Record(options.record), 1) == 1
    assert ran == [random, second]
    again = minatar.Record(options.record)
    assert [job in again for job in jobs] == [True, True, True, False]
    page = minatar.page(jobs, again, options)
    assert "| DQN | 5.00 (4.00 – 6.00) |" in page
    assert "| random play | 1.00 |" in page
    assert "finished, 2 of 3" in page
    assert "over 2 seeds" in page
    options = minatar.parse([*words, *places, "--games", "breakout", "asterix", "freeway"])
    jobs = minatar.jobs_for(options)
    for job in jobs:
        if job.game == "asterix" or (job.game == "freeway" and job.seed == 1):
            finish(job, 1.0)
            again.add(job)
    assert "over 1 to 3 seeds" in minatar.page(jobs, again, options)
    assert "0123456789." in page
