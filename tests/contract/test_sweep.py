"""A sweep killed, resumed, failing, searching and pruning: no run lost, none run twice.

The runs are a stand-in process that keeps a diary of its starts: what is tested is the runner, not the learning.
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from retrograd import ExperimentRunner, cli
from retrograd.core.errors import InUseError, UsageError
from retrograd.experiments import runner as runners
from retrograd.experiments.budget import Inspection
from retrograd.experiments.definition import Definition
from retrograd.experiments.groups import group_rows, measure_effects
from retrograd.experiments.ledger import Ledger, State
from retrograd.experiments.report import draw_plots, make_report
from retrograd.experiments.results import Curve
from retrograd.experiments.search import Grid, Study

FRAMES = 1000

STAND_IN = """
import json, os, signal, sys, time
from pathlib import Path

words = dict(word.split("=", 1) for word in sys.argv[2:] if "=" in word)
if sys.argv[1] == "resume":
    folder = Path(sys.argv[2])
    checkpoint = folder / "checkpoints" / "step_000000500" / "state.json"
    if checkpoint.read_text() == "broken":
        print("retrograd: the checkpoint is broken", file=sys.stderr)
        sys.exit(2)
    if checkpoint.read_text() == "locked":
        print("retrograd: the run folder is in use by process 7", file=sys.stderr)
        sys.exit(75)
    words |= json.loads(checkpoint.read_text())
else:
    folder = Path(words["output_dir"].strip("'")) / words["run_name"]
    assert not folder.exists(), "started into another run's folder"
    folder.mkdir(parents=True)
diary = folder.parent.parent / "diary.txt"
with diary.open("a") as file:
    word = {"resume": "resume", "train": "start"}[sys.argv[1]]
    file.write(f"{word} {folder.name} {os.getpid()} {os.environ['OMP_NUM_THREADS']}\\n")
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
level = float(words.get("x", 1)) - float(words.get("y", 0))
if words.get("fail") == "true":
    print("retrograd: it cannot be done", file=sys.stderr)
    sys.exit(5)
rows = ["step,env_frames,episode_number,episode_return,episode_length"]
for part in range(1, 11):
    rows.append(f"{part * 100},{part * 100},{part},{level * part},7")
    (folder / "train_log.csv").write_text("\\n".join(rows) + "\\n")
    time.sleep(float(words.get("seconds", 0)) / 10)
    paused = part * 100 == int(words.get("training.pause_at_frames", 0))
    if stopped or paused:
        saved = {name: word for name, word in words.items() if name != "training.pause_at_frames"}
        (folder / "checkpoints" / "step_000000500").mkdir(parents=True, exist_ok=True)
        (folder / "checkpoints" / "step_000000500" / "state.json").write_text(json.dumps({**saved, "seconds": 0}))
        sys.exit(143 if stopped else 0)
summary = {"step": 1000, "env_frames": 1000, "wall_seconds": 2.0, "final": {"mean_return": level * 10}}
(folder / "summary.json").write_text(json.dumps(summary))
with diary.open("a") as file:
    file.write(f"end {folder.name}\\n")
"""

DRIVER = """
import sys
sys.path.insert(0, {here!r})
from test_sweep import make_runner
make_runner(sys.argv[1], sys.argv[2]).run_hyperparameter_sweep(sys.argv[3:])
"""


def inspect(overrides) -> Inspection:
    words = dict(word.split("=", 1) for word in overrides)
    if words.get("x") == "bad":
        raise UsageError("x=bad must be a number")
    config = {
        "training": {"total_env_frames": FRAMES},
        "agent": {},
        "hardware": {"torch_threads": None, "env_threads": None},
        "x": float(words.get("x", 1)),
    }
    return Inspection(config, int(words.get("memory", 1)))


def make_runner(folder, script, **options) -> ExperimentRunner:
    options = {"cores": 2, "memory_bytes": 10, "poll_seconds": 0.02, "quiet": True, **options}
    return ExperimentRunner(folder, command=[sys.executable, "-S", str(script)], inspect=inspect, **options)


@pytest.fixture
def script(tmp_path) -> Path:
    path = tmp_path / "stand_in.py"
    path.write_text(STAND_IN)
    return path


def diary(folder: Path) -> list[list[str]]:
    path = folder / "diary.txt"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def wait_for(condition, seconds=20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def starts(folder: Path) -> Counter:
    return Counter(name for word, name, *_ in diary(folder) if word == "start")


def ends(folder: Path) -> Counter:
    return Counter(name for word, name, *_ in diary(folder) if word == "end")


def test_one_run_several_seeds_and_a_grid(tmp_path, script):
    """REQ EXP-1"""
    row = make_runner(tmp_path / "one", script).run_single_experiment(["x=3"])
    assert (row["state"], row["final_score"], row["step"], row["steps_per_second"]) == ("finished", 30.0, 1000, 500.0)
    rows = make_runner(tmp_path / "seeds", script).run_multiple_runs(["x=2"], seeds=[4, 7])
    assert [(row["seed"], row["final_score"]) for row in rows] == [("4", 20.0), ("7", 20.0)]
    runner = make_runner(tmp_path / "grid", script)
    outcome = runner.run_hyperparameter_sweep(["x=1,2", "y=0,1"])
    assert [(row["x"], row["y"], row["final_score"]) for row in outcome.rows] == [
        ("1", "0", 10.0),
        ("1", "1", 0.0),
        ("2", "0", 20.0),
        ("2", "1", 10.0),
    ]
    assert outcome.rows[0]["auc"] == pytest.approx(5.5)  # of a line from 1 to 10


def test_a_killed_sweep_takes_its_runs_with_it_and_goes_on_where_it_was(tmp_path, script):
    folder = tmp_path / "sweep"
    words = ["x=1,2,3,4", "seconds=0.6"]
    driver = [sys.executable, "-c", DRIVER.format(here=str(Path(__file__).parent)), str(folder), str(script), *words]
    sweep = subprocess.Popen(driver)
    wait_for(lambda: sum(ends(folder).values()) >= 1 and sum(starts(folder).values()) >= 3)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    pids = [int(entry[2]) for entry in diary(folder) if entry[0] == "start"]
    wait_for(lambda: not any(psutil.pid_exists(pid) for pid in pids))
    ended_before = ends(folder)
    assert 0 < len(ended_before) < 4
    outcome = make_runner(folder, script).run_hyperparameter_sweep(words)
    assert outcome.counts == {"finished": 4}
    assert ends(folder) == Counter({f"00{number}_{number + 1}": 1 for number in range(4)})
    assert all(starts(folder)[name] == 1 for name in ended_before)
    before = diary(folder)
    assert make_runner(folder, script).run_hyperparameter_sweep(words).rows == outcome.rows
    assert diary(folder) == before  # there was nothing left to do


def test_a_run_that_ended_as_the_sweep_was_killed_is_not_run_again(tmp_path, script):
    make_runner(tmp_path / "s", script).run_hyperparameter_sweep(["x=1,2"])
    Ledger(tmp_path / "s").change("000_1", State.RUNNING)  # as if the end had not been noted
    outcome = make_runner(tmp_path / "s", script).run_hyperparameter_sweep(["x=1,2"])
    assert outcome.counts == {"finished": 2}
    assert starts(tmp_path / "s") == Counter({"000_1": 1, "001_2": 1})


def test_a_run_that_outlived_its_sweep_is_ended_first(tmp_path, script):
    """Where the kernel does not end it: known by its id and its beginning, never by its id alone."""
    make_runner(tmp_path, script).run_hyperparameter_sweep(["x=1,2"])
    left = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
    begun = psutil.Process(left.pid).create_time()
    try:
        for noted, survives in ((begun - 100.0, True), (begun, False)):
            ledger = Ledger(tmp_path)
            ledger.change("000_1", State.RUNNING)
            ledger.note_process("000_1", (left.pid, noted))
            make_runner(tmp_path, script).run_hyperparameter_sweep(["x=1,2"])
            assert (left.poll() is None) == survives
    finally:
        left.kill()
        left.wait()


def test_a_failed_run_is_reported_stops_no_other_and_is_tried_again(tmp_path, script):
    runner = make_runner(tmp_path / "s", script)
    outcome = runner.run_hyperparameter_sweep(["fail=true,false"])
    assert outcome.counts == {"failed": 1, "finished": 1}
    assert [(row["exit_code"], row["reason"]) for row in outcome.failed] == [(5, "it cannot be done")]
    report = make_report("s", Definition.load(tmp_path / "s"), group_rows(outcome.rows, "final"), outcome.rows, [])
    assert "(exit code 5): it cannot be done" in report
    make_runner(tmp_path / "s", script).run_hyperparameter_sweep(["fail=true,false"])
    assert starts(tmp_path / "s") == Counter({"000_true": 2, "001_false": 1})


class StopOnceRunning:
    """Progress that sends SIGTERM to the sweep when so many runs have started."""

    def __init__(self, folder, runs):
        self.folder, self.runs, self.sent = folder, runs, False

    def say(self, text):
        pass

    def show(self, states, total, running):
        if len(starts(self.folder)) == self.runs and not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGTERM)

    def close(self, seconds):
        pass


def test_a_polite_stop_lets_runs_save_and_the_sweep_go_on(tmp_path, script):
    folder, words = tmp_path / "s", ["x=1,2,3", "seconds=1"]
    outcome = make_runner(folder, script, progress=StopOnceRunning(folder, 2)).run_hyperparameter_sweep(words)
    assert (outcome.stopped, outcome.counts) == (signal.SIGTERM, {"stopped": 2, "planned": 1})
    assert make_runner(folder, script).run_hyperparameter_sweep(words).counts == {"finished": 3}
    assert starts(folder) == Counter({"000_1": 1, "001_2": 1, "002_3": 1})
    assert [name for word, name, *_ in diary(folder) if word == "resume"] == ["000_1", "001_2"]


@pytest.mark.faults
def test_a_run_that_saved_something_is_never_begun_anew(tmp_path, script):
    """REQ RUN-11: neither a damaged checkpoint nor another process's lock costs what the run has reached."""
    folder, words = tmp_path / "s", ["x=1,2", "seconds=1"]
    make_runner(folder, script, progress=StopOnceRunning(folder, 2)).run_hyperparameter_sweep(words)
    first, second = (folder / "runs" / name / "checkpoints/step_000000500/state.json" for name in ("000_1", "001_2"))
    saved = first.read_text()
    first.write_text("locked")
    second.write_text("broken")
    outcome = make_runner(folder, script).run_hyperparameter_sweep(words)
    assert [(row["state"], row["exit_code"], row["reason"]) for row in outcome.rows] == [
        ("failed", 75, "the run folder is in use by process 7"),
        ("failed", 2, "the checkpoint is broken"),
    ]
    assert (first.read_text(), second.read_text()) == ("locked", "broken")
    first.write_text(saved)  # free again: it goes on
    assert make_runner(folder, script).run_hyperparameter_sweep(words).counts == {"finished": 1, "failed": 1}
    assert starts(folder) == Counter({"000_1": 1, "001_2": 1})


@pytest.mark.faults
def test_a_run_that_another_process_has_begun_is_left_alone(tmp_path, script):
    """Even where it has no checkpoint yet, so that the sweep would begin it anew."""
    from retrograd.training.lock import RunLock

    run = tmp_path / "runs" / "000_1"
    run.mkdir(parents=True)
    lock = RunLock(run)
    outcome = make_runner(tmp_path, script).run_hyperparameter_sweep(["x=1,2"])
    assert [(row["state"], row["exit_code"]) for row in outcome.rows] == [("failed", 75), ("finished", 0)]
    assert f"is in use by process {os.getpid()}" in outcome.rows[0]["reason"]
    assert [path.name for path in run.iterdir()] == [".lock"]
    lock.release()
    assert make_runner(tmp_path, script).run_hyperparameter_sweep(["x=1,2"]).counts == {"finished": 2}


def test_runs_keep_to_cores_and_memory(tmp_path, script):
    runner = make_runner(tmp_path / "s", script, cores=4, jobs=2)
    runner.run_hyperparameter_sweep(["x=1,2,3", "memory=6", "seconds=0.1"])
    entries = diary(tmp_path / "s")
    assert [word for word, *_ in entries] == ["start", "end"] * 3  # two would need 12 of 10
    assert {entry[3] for entry in entries if entry[0] == "start"} == {"2"}
    with pytest.raises(UsageError, match="the sweep may use"):
        make_runner(tmp_path / "t", script).run_hyperparameter_sweep(["x=1", "memory=11"])
    assert not (tmp_path / "t").exists()


def test_a_folder_belongs_to_one_sweep_at_a_time_and_to_one_definition(tmp_path, script):
    from retrograd.experiments.processes import folder_lock

    make_runner(tmp_path, script).run_hyperparameter_sweep(["x=1"])
    with pytest.raises(UsageError, match="holds another sweep"):
        make_runner(tmp_path, script).run_hyperparameter_sweep(["x=2"])
    with folder_lock(tmp_path), pytest.raises(InUseError, match=f"in use by process {os.getpid()}"):
        make_runner(tmp_path, script).run_hyperparameter_sweep(["x=1"])


def test_a_mistake_in_one_run_is_found_before_any_starts(tmp_path, script):
    with pytest.raises(UsageError, match="run 001_bad: x=bad must be a number"):
        make_runner(tmp_path / "s", script).run_hyperparameter_sweep(["x=1,bad"])
    assert not (tmp_path / "s").exists()


@pytest.mark.faults
def test_a_search_goes_on_after_a_kill_and_takes_more_trials(tmp_path, script):
    optuna = pytest.importorskip("optuna")
    words = ["x=uniform(0.5,4)", "seconds=0.5", "seed=0,1"]
    folder = tmp_path / "s"
    options = {"search": "bayes", "trials": 2}
    code = DRIVER.format(here=str(Path(__file__).parent)).replace("sys.argv[3:])", f"sys.argv[3:], **{options})")
    sweep = subprocess.Popen([sys.executable, "-c", code, str(folder), str(script), *words])
    wait_for(lambda: len(starts(folder)) == 3)  # in the middle of the second trial
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    ended_before = ends(folder)
    outcome = make_runner(folder, script).run_hyperparameter_sweep(words, search="bayes", trials=3)
    assert outcome.counts == {"finished": 6}
    assert outcome.rows[0]["x"] == "1.0"  # the config's own value comes first
    assert len({row["x"] for row in outcome.rows}) == 3  # no setting is drawn twice
    assert all(starts(folder)[name] == 1 for name in ended_before)
    study = optuna.load_study(study_name="sweep", storage=f"sqlite:///{folder}/study.db")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 3
    assert [trial.value for trial in study.trials] == [row["final_score"] for row in outcome.rows[::2]]


@pytest.mark.faults
@pytest.mark.parametrize("drawn", [0, 1])
@pytest.mark.parametrize("search", ["random", "bayes"])
def test_a_search_killed_while_it_asked_for_a_setting_goes_on(tmp_path, drawn, search):
    """The trial is in the study, some of its values are not; one that was to be the config's own setting still is."""
    pytest.importorskip("optuna")
    definition = Definition(("x=uniform(0.5,4)", "y=int(1,9)"), search=search, trials=3)
    study = Study(definition, tmp_path, Ledger(tmp_path), first={"x": 1.0, "y": 7})
    kinds = study._distributions()
    study._study.ask(dict(list(kinds.items())[:drawn]))
    again = Study(definition, tmp_path, Ledger(tmp_path), first={"x": 1.0, "y": 7})
    specs = []
    while spec := again.next():
        specs.append(spec)
        again.settle(spec, State.FINISHED, 1.0)
    assert [(spec.name, spec.settings.keys()) for spec in specs] == [
        (name, kinds.keys()) for name in ("trial000", "trial001", "trial002")
    ]
    assert specs[0].settings == {"x": "1.0", "y": "7"}
    assert again.known() == specs


def test_trials_behind_the_median_are_given_up(tmp_path):
    pytest.importorskip("optuna")
    definition = Definition(("x=uniform(-9,4)", "seed=0,1"), search="random", trials=9, prune=True)
    ledger = Ledger(tmp_path)
    study = Study(definition, tmp_path, ledger)
    pruned, kept = {}, {}
    while spec := study.next():
        level, behind = float(spec.settings["x"]), False
        for part in (1, 3, 6, 10):
            frames = np.arange(1.0, part + 1) * FRAMES / 10
            behind = behind or study.hopeless(spec, Curve(frames, level * np.arange(1.0, part + 1)), FRAMES)
        study.settle(spec, State.PRUNED if behind else State.FINISHED, None if behind else 10 * level)
        (pruned if behind else kept)[spec.trial] = level
    assert len(pruned) + len(kept) == 9
    assert pruned
    assert min(pruned) >= 5  # before that nothing is compared
    assert max(pruned.values()) < sorted(kept.values())[-1]
    assert {ledger[f"trial{number:03d}_seed1"].state for number in pruned} == {State.PRUNED}  # never started


def test_a_run_without_hope_is_ended(tmp_path, script, monkeypatch):
    monkeypatch.setattr(runners, "PRUNE_SECONDS", 0.05)
    monkeypatch.setattr(Grid, "hopeless", lambda self, spec, curve, total: spec.name == "000_1" and len(curve.frames))
    outcome = make_runner(tmp_path, script).run_hyperparameter_sweep(["x=1,2", "seconds=4"])
    assert [(row["state"], row["final_score"]) for row in outcome.rows] == [("pruned", None), ("finished", 20.0)]
    assert make_runner(tmp_path, script).run_hyperparameter_sweep(["x=1,2", "seconds=4"]).rows == outcome.rows


def test_the_table_is_the_same_in_both_forms_and_the_report_needs_no_network(tmp_path, script):
    parquet = pytest.importorskip("pyarrow.parquet")
    runner = make_runner(tmp_path, script)
    outcome = runner.run_hyperparameter_sweep(["x=1,2", "seed=0,1,2"])
    names = {path.relative_to(tmp_path).as_posix() for path in runner.save_results()}
    assert names >= {"results.csv", "results.parquet", "report.html", "plots/learning_curves.png", "plots/scores.svg"}
    table = parquet.read_table(tmp_path / "results.parquet").to_pylist()
    assert table == outcome.rows
    with (tmp_path / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["final_score"] for line in lines] == [str(row["final_score"]) for row in outcome.rows]
    report = (tmp_path / "report.html").read_text()
    assert "Best is <b>2</b> with 20" in report
    assert report.count("data:image/svg+xml;base64,") == 4  # two pictures, by day and by night
    assert 'src="http' not in report
    assert "<link" not in report
    assert "<script" not in report


def make_row(agent, env, seed, score, **settings):
    run = f"{agent}_{env}_{seed}"
    return {"run": run, "agent": agent, "env": env, **settings, "seed": seed, "state": "finished", "final_score": score}


def test_each_environment_has_its_own_best_and_its_own_axis(tmp_path):
    pytest.importorskip("matplotlib")
    scores = {("dqn", "pong"): 18.0, ("ppo", "pong"): -20.0, ("dqn", "breakout"): 30.0, ("ppo", "breakout"): 35.0}
    rows = [
        make_row(agent, env, seed, score + rate, **{"preset.lr": str(rate)})
        for (agent, env), score in scores.items()
        for seed in "012"
        for rate in (1, 2)
    ]
    definition = Definition(("agent=dqn,ppo", "env=pong,breakout", "preset.lr=1,2", "seed=0,1,2"))
    groups = group_rows(rows, "final")
    assert [(group.task, group.label_in_task, group.mean) for group in groups[::2]] == [
        ("pong", "dqn, lr=2", 20.0),
        ("pong", "ppo, lr=2", -18.0),
        ("breakout", "ppo, lr=2", 37.0),
        ("breakout", "dqn, lr=2", 32.0),
    ]
    report = make_report("s", definition, groups, [], [])
    assert "Best on <b>pong</b> is <b>dqn, lr=2</b> with 20. " in report
    assert "Best on <b>breakout</b> is <b>ppo, lr=2</b> with 37.<" in report
    figures = draw_plots(tmp_path, definition, groups).figures
    assert [axis.get_title() for axis in figures["scores"].axes] == ["pong", "breakout"]
    sensitivity = figures["sensitivity"].axes
    assert [(axis.get_title(), axis.get_xlabel()) for axis in sensitivity] == [
        ("pong", "preset.lr"),
        ("breakout", "preset.lr"),
    ]
    assert [max(axis.lines[0].get_ydata()) for axis in sensitivity] == [20.0, 37.0]


def test_protocols_that_score_otherwise_are_kept_apart_and_others_are_not():
    def tasks(key, *values):
        rows = [make_row("dqn", "pong", "0", 1.0, **{key: value}) for value in values]
        return [group.task for group in group_rows(rows, "final")]

    assert tasks("env_protocol", "paper_v4", "dopamine") == ["pong, paper_v4", "pong, dopamine"]
    assert len(set(tasks("env_protocol.repeat_action_probability", "0", "0.25"))) == 2
    assert len(set(tasks("env_protocol.flicker_probability", "0", "0.5"))) == 2
    assert tasks("env_protocol.screen_size", "64", "84") == ["pong", "pong"]


def test_the_summary_names_the_best_of_each_environment(tmp_path):
    from retrograd.cli.sweep import _summary
    from retrograd.experiments.runner import Outcome

    rows = [make_row("dqn", "pong", "0", 18.0), make_row("dqn", "breakout", "0", 30.0)]
    assert _summary(Outcome(tmp_path, rows, "final", None), [])["best"] == [
        {"on": "pong", "settings": "dqn", "score": 18.0, "seeds": 1},
        {"on": "breakout", "settings": "dqn", "score": 30.0, "seeds": 1},
    ]


def test_an_ablation_draws_its_figure(tmp_path, script):
    pytest.importorskip("matplotlib")

    ablation = {
        "name": "mine",
        "title": "parts",
        "variants": {
            "full": {"overrides": ["x=3"]},
            "no_a": {"overrides": ["x=2"], "against": "full", "removes": "a", "panel": "minus"},
            "with_b": {"overrides": ["x=5"], "against": "no_a", "adds": "b", "panel": "plus"},
        },
    }
    runner = make_runner(tmp_path, script)
    outcome = runner.run_hyperparameter_sweep(["seed=0,1,2"], ablation=ablation)
    definition, groups = Definition.load(tmp_path), group_rows(outcome.rows, "final")
    figure = draw_plots(tmp_path, definition, groups).figures["ablation"]
    assert [axis.get_title() for axis in figure.axes] == ["minus", "plus", "What each part brings"]
    assert [len(axis.lines) for axis in figure.axes[:2]] == [2, 2]  # full is in both
    assert [bar.get_width() for bar in figure.axes[2].patches] == [10.0, 30.0]
    assert "retrograd sweep ablation=mine seed=0,1,2" in make_report("s", definition, groups, outcome.rows, [])
    assert definition.series is not None
    effects = measure_effects(definition.series, groups)
    assert [(effect.variant.name, effect.value, effect.low) for effect in effects] == [
        ("no_a", 10.0, 10.0),  # what taking the part out costs
        ("with_b", 30.0, 30.0),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to run"),
        (["agent=dqn,pppo"], "'ppo'"),
        (["agent=dqn", "preset.lr=log(1e-5,1e-2)", "--search", "grid"], "a grid cannot run through"),
        (["ablation=rainbwo"], "'rainbow'"),
        (["agent=dqn", "--jobs", "900"], "starve each other"),
        (["agent=dqn", "--memory", "lots"], "such as 8GB"),
        (["agent=dqn", "env=cartpole", "--name", "L" * 300], "File name too long"),
        (["agent=dqn", "+trils=3"], "'trials'"),
        (["--resume", "nowhere"], "is no sweep"),
        (["agent=dqn", "replay.capacity=900000000"], "the sweep may use"),
        (["agent=ppo", "agent.gamma=uniform(0.9,1.1)"], "from 0 to 1"),
    ],
)
def test_bad_input_is_refused(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", *arguments]) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_prints_the_runs_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["sweep", "agent=dqn,ppo", "env=cartpole", "seed=0,1", "+name=x", "--dry-run"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert [run["run"] for run in plan["runs"]] == ["000_dqn_seed0", "001_dqn_seed1", "002_ppo_seed0", "003_ppo_seed1"]
    assert plan["sweep"] == "outputs/sweeps/x"
    assert list(tmp_path.iterdir()) == []


def test_every_shipped_ablation_makes_runs(capsys):
    """Found by glob: each variant of each series is a config that can be run."""
    from retrograd.config import ConfigManager

    names = ConfigManager(None).options("ablation")
    assert {"rainbow", "four_steps"} <= set(names)
    for name in names:
        assert cli.main(["sweep", f"ablation={name}", "env=pong", "replay.capacity=60000", "--dry-run"]) == 0
        runs = json.loads(capsys.readouterr().out)["runs"]
        assert len({tuple(run["overrides"]) for run in runs}) == len(runs) >= 4


def test_an_ablation_is_no_single_run(capsys):
    assert cli.main(["train", "ablation=rainbow"]) == 2
    assert "retrograd sweep ablation" in capsys.readouterr().err


@pytest.mark.faults
def test_real_runs_killed_in_the_middle(tmp_path):
    """REQ EXP-1: the whole command with real trainings; after a kill only what was not finished is run again."""
    words = [
        "agent=dqn", "env=retrograd/Catch-v0", "seed=0,1", "preset=modern", "training.total_env_frames=600",
        "training.num_envs=1", "training.warmup_random_steps=550", "training.log_every_steps=20", "agent.batch_size=4",
        "replay.capacity=1000", "eval.full_episodes=2", "eval.record_video=false", "hardware.device=cpu",
    ]  # fmt: skip
    arguments = ["sweep", *words, f"output_dir={tmp_path}", "--name", "real", "--cores", "1"]
    folder = tmp_path / "sweeps" / "real"
    sweep = subprocess.Popen([sys.executable, "-m", "retrograd", *arguments], stderr=subprocess.DEVNULL)
    wait_for((folder / "runs" / "001_seed1" / "train_log.csv").exists, seconds=120)
    sweep.send_signal(signal.SIGKILL)
    sweep.wait()
    first = (folder / "runs" / "000_seed0" / "summary.json").stat()
    assert cli.main(arguments) == 0
    entries = json.loads((folder / "runs.json").read_text())
    assert {name: (entry["state"], entry["starts"]) for name, entry in entries.items()} == {
        "000_seed0": ("finished", 1),
        "001_seed1": ("finished", 2),
    }
    assert (folder / "runs" / "000_seed0" / "summary.json").stat() == first
    assert [path.name for path in sorted((folder / "runs").iterdir())] == ["000_seed0", "001_seed1"]
    with (folder / "results.csv").open(newline="") as file:
        assert [(row["seed"], row["step"]) for row in csv.DictReader(file)] == [("0", "600"), ("1", "600")]


def test_without_an_inspector_the_command_itself_is_asked(tmp_path):
    from retrograd.experiments.inspection import show_config
    from retrograd.experiments.runner import RETROGRAD

    inspect = show_config(RETROGRAD)
    seen = inspect(["agent=ppo", "env=cartpole", "training.total_env_frames=123"])
    assert (seen.total_frames, seen.threads, seen.processes) == (123, None, 1)
    assert seen.memory_bytes > 10**8
    with pytest.raises(UsageError, match=r"'agent\.gamma'"):
        inspect(["agent.gama=0.9"])


RACING = ["x=2,3,1", "seed=7"]


def states(folder: Path) -> dict[str, str]:
    ledger = Ledger(folder)
    return {name: str(ledger[name].state) for name in ledger}


def test_a_race_compares_at_the_pause_and_lets_the_best_go_on_with_all_cores(tmp_path, script):
    outcome = make_runner(tmp_path / "s", script).run_hyperparameter_sweep(RACING, race_frames=500)
    assert states(tmp_path / "s") == {"000_2": "pruned", "001_3": "finished", "002_1": "pruned"}
    assert outcome.winner == tmp_path / "s" / "runs" / "001_3"
    assert [row["final_score"] for row in outcome.rows] == [None, 30.0, None]
    # judged by the games of the last fifth of the way: only the fifth one of each
    assert [row["reason"] for row in outcome.rows] == [
        "10 at the pause, 001_3 had 15", None, "5 at the pause, 001_3 had 15",
    ]  # fmt: skip
    assert outcome.failed == []
    told = diary(tmp_path / "s")
    assert [line[3] for line in told if line[0] == "start"] == ["1", "1", "1"]
    assert [line[1:4:2] for line in told if line[0] == "resume"] == [["001_3", "2"]]


def test_a_race_is_judged_by_games_however_often_runs_are_evaluated(tmp_path, script):
    script.write_text(script.read_text().replace("stopped = []", EVALUATED))
    outcome = make_runner(tmp_path / "s", script).run_hyperparameter_sweep(RACING, race_frames=500)
    assert outcome.winner == tmp_path / "s" / "runs" / "001_3"


EVALUATED = """stopped = []
(folder / "eval_log.csv").write_text("env_frames,eval_mean_return\\n" + "".join(f"{f},7\\n" for f in (1, 2, 3, 4)))
"""


@pytest.mark.parametrize("at", ["before the pause", "after it"])
def test_a_race_that_was_stopped_goes_on_where_it_was(at, tmp_path, script):
    folder = tmp_path / "s"
    words = [*RACING, f"seconds={2 if at == 'before the pause' else 0.4}"]
    driver = RACE_DRIVER.format(here=str(Path(__file__).parent))
    process = subprocess.Popen([sys.executable, "-c", driver, str(folder), str(script), *words])
    if at == "before the pause":
        wait_for(lambda: len(starts(folder)) == 2)
    else:
        wait_for(lambda: any(word == "resume" for word, *_ in diary(folder)))
    process.kill()
    process.wait()
    outcome = make_runner(folder, script).run_hyperparameter_sweep(words, race_frames=500)
    assert outcome.winner == folder / "runs" / "001_3"
    assert sorted(states(folder).values()) == ["finished", "pruned", "pruned"]
    assert ends(folder) == {"001_3": 1}


RACE_DRIVER = """
import sys
sys.path.insert(0, {here!r})
from test_sweep import make_runner
make_runner(sys.argv[1], sys.argv[2]).run_hyperparameter_sweep(sys.argv[3:], race_frames=500)
"""


def test_a_failed_run_loses_the_race_and_is_told(tmp_path, script):
    runner = make_runner(tmp_path / "s", script)
    outcome = runner.run_hyperparameter_sweep(["x=1,2", "fail=false,true"], race_frames=500)
    assert sorted(states(tmp_path / "s").values()) == ["failed", "failed", "finished", "pruned"]
    assert len(outcome.failed) == 2
    assert outcome.winner is not None
    assert outcome.winner.name == "002_2_false"


def test_a_chosen_run_that_fails_leaves_no_winner(tmp_path, script):
    script.write_text(script.read_text().replace("    words |= json.loads", "    sys.exit(5)\n    words |= json.loads"))
    outcome = make_runner(tmp_path / "s", script).run_hyperparameter_sweep(RACING, race_frames=500)
    assert states(tmp_path / "s") == {"000_2": "pruned", "001_3": "failed", "002_1": "pruned"}
    assert outcome.winner is None


@pytest.mark.parametrize(
    ("words", "frames", "options", "message"),
    [
        (["x=1,2"], 1000, {}, "must end within the run, above 0 and below 1000"),
        (["x=1,2"], 0, {}, "must end within the run"),
        (["x=1"], 500, {}, "at least two runs"),
        (["env=a,b"], 500, {}, "runs of several env cannot race"),
        (["x=uniform(1,2)"], 500, {"search": "random", "trials": 2}, "not for a random search"),
    ],
)
def test_a_race_that_decides_nothing_is_refused(words, frames, options, message, tmp_path, script):
    with pytest.raises(UsageError, match=message):
        make_runner(tmp_path / "s", script).run_hyperparameter_sweep(words, race_frames=frames, **options)
    assert not (tmp_path / "s").exists()


def test_sweeps_without_a_race_keep_their_names():
    assert Definition(("agent=ppo", "seed=0,1")).default_name == "ppo_8167912e"
    assert Definition(("agent=ppo", "seed=0,1"), race_frames=5).digest != Definition(("agent=ppo", "seed=0,1")).digest
