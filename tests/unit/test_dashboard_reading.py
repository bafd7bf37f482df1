"""The dashboard reads what is there: growing files, broken files, hundreds of runs, and nothing outside its folder."""

from __future__ import annotations

import json
import os
import platform
import threading
import urllib.parse

import pytest

pytest.importorskip("pandas", reason="the dashboard extra is not installed")

from retrograd.dashboard.folder import OutputFolder
from retrograd.dashboard.runs import RunReader, measured_alike
from retrograd.dashboard.tables import GrowingTable, header_of, last_row, read_columns
from retrograd.experiments.runs import read_run
from retrograd.tracking.csv import CsvSink

CONFIG = "seed: 3\ntrack: custom\nenv: {name: pong}\nagent: {name: ppo}\nenv_protocol: {name: paper_v4}\n"
CONFIG += "training: {total_env_frames: 4000}\n"
UPDATES = "step,env_frames,loss,steps_per_second,wall_seconds,return_mean_100\n"
EVALS = "step,env_frames,eval_type,eval_mean_return,eval_human_normalized\n"


def make_run(root, name, *, rows=3, evals=True):
    run = root / name
    (run / ".hydra").mkdir(parents=True)
    (run / ".hydra" / "config.yaml").write_text(CONFIG)
    (run / "update_log.csv").write_text(UPDATES + "".join(f"{i},{4 * i},0.5,100.0,{i}.0,-20\n" for i in range(1, rows)))
    if evals:
        (run / "eval_log.csv").write_text(EVALS + "10,40,light,5.0,0.5\n20,80,light,3.0,0.25\n")
    return run


def read(root, name):
    reader = RunReader(OutputFolder(root))
    return reader, reader.folder.runs()[name]


def test_a_growing_file_is_read_line_by_line(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n1,0.5\n2,0.")
    table = GrowingTable(path)
    assert table.read()["loss"].tolist() == [0.5]  # the second line is still being written
    with path.open("a") as file:
        file.write("25\n3,0.1\n")
    assert table.read()["loss"].tolist() == [0.5, 0.25, 0.1]


def test_a_file_that_was_cut_back_is_read_anew(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n1,0.5\n2,0.4\n")
    table = GrowingTable(path)
    table.read()
    path.write_text("step,loss\n1,0.5\n")
    os.utime(path, (1, 1))
    assert table.read()["step"].tolist() == [1]


def test_a_file_that_was_cut_back_and_has_outgrown_itself_is_read_anew(tmp_path):
    path = tmp_path / "log.csv"
    kept = "step,loss\n" + 20 * "1,0.5\n"
    path.write_text(f"{kept}2,0.4\n")
    table = GrowingTable(path)
    table.read()
    path.write_text(f"{kept}3,0.7\n4,0.8\n")  # in place, and the line that was read last is as long as before
    os.utime(path, (1, 1))
    assert table.read()["step"].tolist() == [1] * 20 + [3, 4]


def test_a_log_that_gets_more_columns_is_read_on(tmp_path):
    sink = CsvSink(tmp_path)
    for step in (1, 2, 3):
        sink.write("update", {"step": step, "env_frames": 4 * step, "wall_seconds": 2.0})
    table = GrowingTable(tmp_path / "update_log.csv")
    assert len(table.read()) == 3
    for step in (4, 5, 6):
        sink.write("update", {"step": step, "env_frames": 4 * step, "replay_fill": 0.5, "wall_seconds": 2.0})
        assert table.read()["step"].tolist() == list(range(1, step + 1))
    assert table.read()["replay_fill"].dropna().tolist() == [0.5] * 3
    assert table.skipped_lines == 0


def test_a_log_that_a_resumed_run_has_cut_back_and_outgrown_is_read_anew(tmp_path):
    def episode(number, score):
        return {"step": 10 * number, "env_frames": 40 * number, "episode_number": number, "episode_return": score}

    sink = CsvSink(tmp_path)
    for number in range(1, 21):
        sink.write("train", episode(number, -21.0))
    table = GrowingTable(tmp_path / "train_log.csv")
    table.read()
    for _ in range(2):  # twice, as the system may give the second new file the number of the first
        sink.load_state_dict({"train": 5})
        for number in range(6, 41):
            sink.write("train", episode(number, 5.0))
    assert table.read()["episode_return"].tolist() == [-21.0] * 5 + [5.0] * 35


def test_lines_that_are_no_rows_are_left_out_and_counted(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n1,0.5\nnonsense\n2,not a number\n3,0.1,9\n4,0.2\n")
    table = GrowingTable(path)
    frame = table.read()
    assert frame["step"].tolist() == [1, 2, 4]
    assert frame["loss"].isna().tolist() == [False, True, False]
    assert table.skipped_lines == 2


@pytest.mark.parametrize("more", [b"5,0.1,light\n", b"", b"nonsense\n"], ids=["numbers", "nothing", "nonsense"])
def test_pieces_read_quickly_and_slowly_make_one_table(tmp_path, more):
    path = tmp_path / "log.csv"
    path.write_bytes(b"step,loss,eval_type\n1,0.5,light\n2,,full\n3,nan,light\n")
    table = GrowingTable(path)
    table.read()
    with path.open("ab") as file:
        file.write(b"4,odd,light\r\n" + more)
    frame = table.read()
    assert frame["step"].tolist() == [1, 2, 3, 4, 5][: 4 + more.startswith(b"5")]
    assert frame["loss"].isna().tolist()[:4] == [False, True, True, True]
    assert frame["loss"].dtype == float
    assert frame["eval_type"].tolist()[:4] == ["light", "full", "light", "light"]


def test_several_sessions_read_each_row_once(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n")
    table = GrowingTable(path)
    for number in range(20):
        with path.open("a") as file:
            file.write(f"{number},0.5\n" * 500)
        readers = [threading.Thread(target=table.read) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    assert len(table.read()) == 10_000


def test_two_columns_of_one_name_are_told_apart(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss,loss\n1,0.5,0.6\n")
    assert GrowingTable(path).read().columns.tolist() == header_of(path) == ["step", "loss", "loss_2"]
    assert header_of(None) == header_of(tmp_path / "missing") == []


def test_the_last_row_needs_no_whole_file(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("step,loss\n" + "".join(f"{i},0.5\n" for i in range(5000)) + "5000,0.")
    assert last_row(path) == {"step": "4999", "loss": "0.5"}
    assert last_row(None) == {}


def test_one_line_of_the_overview(tmp_path):
    make_run(tmp_path, "one", rows=11)
    reader, run = read(tmp_path, "one")
    info = reader.info(run)
    assert (info.game, info.agent, info.protocol, info.seed) == ("pong", "ppo", "paper_v4", 3)
    assert (info.last_score, info.best_score, info.human_normalized) == (3.0, 5.0, 0.25)
    assert (info.frames, info.progress, info.steps_per_second, info.state) == (40, 0.01, 100.0, "running")


@pytest.mark.parametrize(
    ("file", "state"), [("summary.json", "done"), ("failure.json", "failed"), (None, "running")], ids=str
)
def test_the_state_of_a_run(tmp_path, file, state):
    run = make_run(tmp_path, "one")
    if file:
        (run / file).write_text("{}")
    reader, folder = read(tmp_path, "one")
    assert reader.info(folder).state == state


@pytest.mark.parametrize(
    ("order", "state"),
    [
        ("failure.json summary.json", "done"),
        ("summary.json failure.json", "failed"),
        ("failure.json .lock", "running"),
        (".lock failure.json", "failed"),
        ("summary.json .lock", "running"),  # with a larger budget, say
    ],
)
def test_what_a_run_said_last_is_its_state(tmp_path, order, state):
    run = make_run(tmp_path, "one")
    for second, name in enumerate(order.split(), start=1):
        (run / name).write_text(json.dumps({"pid": os.getpid(), "host": platform.node()} if name == ".lock" else {}))
        os.utime(run / name, (second, second))
    reader, folder = read(tmp_path, "one")
    assert reader.info(folder).state == state


def test_a_lock_that_was_given_back_says_nothing(tmp_path):
    run = make_run(tmp_path, "one")
    (run / "failure.json").write_text("{}")
    os.utime(run / "failure.json", (1, 1))
    (run / ".lock").write_text("")
    reader, folder = read(tmp_path, "one")
    assert reader.info(folder).state == "failed"


@pytest.mark.parametrize(
    ("values", "comparable"),
    [
        ("repeat_action_probability: 0.0", "no_sticky"),
        ("repeat_action_probability: 0.25", "sticky"),
        ("repeat_action_probability: 0.1", None),
        ("repeat_action_probability: 0.0, flicker_probability: 0.5", None),
        ("screen_size: 84", None),
    ],
)
def test_what_is_published_alike_is_known_by_values_and_not_by_a_name(tmp_path, values, comparable):
    run = make_run(tmp_path, "one", evals=False)
    (run / "train_log.csv").write_text("env_frames,episode_return\n4,1.0\n")
    config = CONFIG.replace("{name: paper_v4}", f"{{name: paper_v4, {values}}}")
    (run / ".hydra" / "config.yaml").write_text(config)
    reader, folder = read(tmp_path, "one")
    expected = (f"{comparable}_eval", f"{comparable}_train") if comparable else ()
    assert reader.info(folder).comparable == expected
    assert read_run(run).family == comparable  # as for `retrograd compare`


def test_a_training_return_is_not_averaged_with_evaluations(tmp_path):
    for name in ("one", "two"):
        make_run(tmp_path, name)
    make_run(tmp_path, "young", evals=False)
    infos = RunReader(OutputFolder(tmp_path)).infos()
    young = [info for info in infos if info.name == "young"]
    assert young[0].last_score == -20.0
    kept, left_out = measured_alike(infos)
    assert ({info.name for info in kept}, left_out) == ({"one", "two"}, young)
    assert measured_alike(young) == (young, [])


def test_a_run_that_has_been_silent_is_stopped(tmp_path):
    run = make_run(tmp_path, "one")
    for path in (*run.glob("*.csv"), run / ".hydra" / "config.yaml"):
        os.utime(path, (1e9, 1e9))
    reader, folder = read(tmp_path, "one")
    assert reader.info(folder).state == "stopped"


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_the_lock_says_at_once_whether_a_run_is_going_on(tmp_path, state):
    run = make_run(tmp_path, "one")
    pid = os.getpid() if state == "running" else 2**22 + 1  # more than the system gives out
    (run / ".lock").write_text(json.dumps({"pid": pid, "host": platform.node()}))
    reader, folder = read(tmp_path, "one")
    assert reader.info(folder).state == state


@pytest.mark.parametrize("config", ["", "[1, 2", "- a list", "\x00\x01", "!!python/object/apply:os.system ['true']"])
def test_a_broken_config_breaks_nothing(tmp_path, config):
    run = make_run(tmp_path, "one")
    (run / ".hydra" / "config.yaml").write_text(config)
    reader, folder = read(tmp_path, "one")
    info = reader.info(folder)
    assert info.state == "broken"
    assert "config" in info.problem


def test_odd_values_in_a_config_are_taken_as_text_or_left_out(tmp_path):
    run = make_run(tmp_path, "one")
    (run / ".hydra" / "config.yaml").write_text(
        "env: {name: [1, 2]}\nagent: 7\nseed: x\ntraining: {total_env_frames: many}\nenv_protocol: {name: {a: b}}\n"
    )
    reader, folder = read(tmp_path, "one")
    info = reader.info(folder)
    assert (info.game, info.agent, info.protocol) == ("[1, 2]", "?", "{'a': 'b'}")
    assert (info.seed, info.total_frames, info.progress) == (None, None, None)


def test_a_config_that_unfolds_without_bound_is_not_unfolded(tmp_path):
    run = make_run(tmp_path, "one")
    rows = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    (run / ".hydra" / "config.yaml").write_text("\n".join(rows))
    reader, folder = read(tmp_path, "one")
    assert reader.info(folder).state == "broken"
    assert reader.settings(folder) == {}


def test_settings_are_flat_text(tmp_path):
    make_run(tmp_path, "one")
    reader, folder = read(tmp_path, "one")
    assert reader.settings(folder)["env_protocol.name"] == "paper_v4"
    assert reader.settings(folder)["training.total_env_frames"] == "4000"


def test_scores_that_are_no_numbers_are_no_scores(tmp_path):
    run = make_run(tmp_path, "one")
    (run / "checkpoints").mkdir()
    catalog = [{"step": 1, "path": "a", "eval_score": "high"}, {"step": 2, "path": "b", "eval_score": 3}, {"step": "x"}]
    (run / "checkpoints" / "catalog.json").write_text(json.dumps(catalog))
    reader, folder = read(tmp_path, "one")
    assert [entry["eval_score"] for entry in reader.checkpoints(folder)] == [None, 3.0]


def test_json_nested_without_end_breaks_nothing(tmp_path):
    run = make_run(tmp_path, "one")
    (run / "summary.json").write_text("[" * 100_000)
    reader, folder = read(tmp_path, "one")
    assert reader.summary(folder) == {}


def test_a_name_that_is_no_text_can_be_shown(tmp_path):
    make_run(tmp_path, "one")
    os.rename(tmp_path / "one", os.path.join(os.fsencode(tmp_path), b"on\xff"))
    reader = RunReader(OutputFolder(tmp_path))
    (info,) = reader.infos()
    assert info.name == "on?"
    assert info.game == "pong"


def test_a_run_that_goes_on_again_is_seen_before_it_has_logged(tmp_path):
    run = make_run(tmp_path, "one")
    (run / ".lock").write_text(json.dumps({"pid": 2**22 + 1, "host": platform.node()}))
    reader, folder = read(tmp_path, "one")
    assert reader.info(folder).state == "stopped"
    (run / ".lock").write_text(json.dumps({"pid": os.getpid(), "host": platform.node()}))
    assert reader.info(folder).state == "running"


def test_new_rows_of_a_running_run_are_seen(tmp_path):
    run = make_run(tmp_path, "one", rows=3)
    reader, folder = read(tmp_path, "one")
    assert reader.info(folder).frames == 8
    with (run / "update_log.csv").open("a") as file:
        file.write("50,200,0.5,100.0,3.0,-19\n")
    assert reader.info(folder).frames == 200


def test_runs_of_a_sweep_are_found_and_belong_together(tmp_path):
    sweep = tmp_path / "sweeps" / "mine"
    make_run(sweep / "runs", "a")
    make_run(sweep / "runs", "b")
    (sweep / "sweep.yaml").write_text("{}")
    folder = OutputFolder(tmp_path)
    assert list(folder.runs()) == ["sweeps/mine/runs/a", "sweeps/mine/runs/b"]
    assert folder.series() == {"sweeps/mine": ("sweeps/mine/runs/a", "sweeps/mine/runs/b")}


def test_two_hundred_long_runs_are_listed_without_reading_them(tmp_path, monkeypatch):
    for number in range(200):
        make_run(tmp_path, f"run_{number:03d}", rows=2)
    read_kinds = []
    original = RunReader.table
    monkeypatch.setattr(
        RunReader, "table", lambda self, run, kind: read_kinds.append(kind) or original(self, run, kind)
    )
    assert len(RunReader(OutputFolder(tmp_path)).infos()) == 200
    assert read_kinds == []  # logs are looked at from their end, and for a column or two


def test_a_page_that_comes_while_the_runs_are_listed_reads_nothing_twice(tmp_path, monkeypatch):
    for name in "abc":
        make_run(tmp_path, name)
    reader = RunReader(OutputFolder(tmp_path))
    read_runs, begun = [], threading.Event()
    original = RunReader._read_info

    def slow(self, run, written_at):
        read_runs.append(run.name)
        begun.set()
        threading.Event().wait(0.05)
        return original(self, run, written_at)

    monkeypatch.setattr(RunReader, "_read_info", slow)
    warming = threading.Thread(target=reader.infos)
    warming.start()
    begun.wait()
    assert len(reader.infos()) == 3
    warming.join()
    assert sorted(read_runs) == ["a", "b", "c"]


def test_a_run_that_goes_on_costs_a_look_at_its_lock_alone(tmp_path, monkeypatch):
    make_run(tmp_path, "run")
    reader, run = read(tmp_path, "run")
    assert reader.info(run).state == "running"
    monkeypatch.setattr(RunReader, "config", lambda *_: pytest.fail("the config has not changed"))
    assert reader.info(run).state == "running"


@pytest.mark.parametrize(
    "broken", ["", "5,oops,0.5\n", "6,1\n", "7,4.0,0."], ids=["whole", "no number", "short", "half"]
)
def test_few_columns_equal_those_of_the_whole_table(tmp_path, broken):
    path = tmp_path / "eval_log.csv"
    path.write_text(f"step,mean,normalized\n1,2.5,0.1\n2,,0.2\n3,-1,\n{broken}")
    table = GrowingTable(path).read()
    for name, values in zip(("mean", "normalized"), read_columns(path, ("mean", "normalized")), strict=True):
        assert values.tolist() == table[name].dropna().tolist()
    assert read_columns(path, ("mean",))[0].tolist() == [2.5, -1.0]
    assert [len(values) for values in read_columns(path, ("nothing",))] == [0]
    assert [len(values) for values in read_columns(None, ("mean",))] == [0]


def traversals():
    """Names that would lead out of the folder if anybody made a path of them: plain, encoded, absolute, odd."""
    bases = ["../secret", "../../etc/passwd", "/etc/passwd", "one/../../secret", "..\\secret", "one/..", ".", "..", "~"]
    bases += [
        "one\x00/../secret",
        "file:" + "///secret",
        "one/./../secret",
        "C:\\secret",
        "//etc/passwd",
        "....//secret",
    ]
    bases += ["%2e%2e/secret", "..%2fsecret", "one;/../secret", "one/../../outputs/../secret", "\\\\host\\share"]
    for base in bases:
        once = urllib.parse.quote(base, safe="")
        yield from (base, once, urllib.parse.quote(once, safe=""), once.replace("%2F", "%c0%af"))


def test_there_are_at_least_sixty_traversals():
    assert len(set(traversals())) >= 60


@pytest.mark.parametrize("name", sorted(set(traversals())), ids=ascii)
def test_no_name_leads_out_of_the_folder(tmp_path, name):
    make_run(tmp_path / "outputs", "one")
    make_run(tmp_path, "secret")
    folder = OutputFolder(tmp_path / "outputs")
    assert name not in folder.runs()
    assert folder.runs()["one"].file(name) is None or folder.runs()["one"].file(name).is_relative_to(folder.root)


def test_links_lead_nowhere(tmp_path):
    secret = make_run(tmp_path, "secret")
    outputs = tmp_path / "outputs"
    run = make_run(outputs, "one", evals=False)
    (outputs / "linked").symlink_to(secret)
    (run / "eval_log.csv").symlink_to(secret / "eval_log.csv")
    (run / "checkpoints" / "step_1").mkdir(parents=True)
    (run / "checkpoints" / "step_1" / "video.mp4").symlink_to(secret / "update_log.csv")
    catalog = [{"step": 1, "path": "step_1"}, {"step": 2, "path": "../../secret"}]
    (run / "checkpoints" / "catalog.json").write_text(json.dumps(catalog))
    reader, folder = read(outputs, "one")
    assert list(reader.folder.runs()) == ["one"]
    assert folder.file("eval_log.csv") is None
    assert [entry["video"] for entry in reader.checkpoints(folder)] == [None, None]
    assert reader.table(folder, "eval").empty
