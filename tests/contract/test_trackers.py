"""Trackers, by the real packages: what each has stored is read back and is what the CSV files hold."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retrograd import cli
from retrograd.core.types import Episode
from retrograd.tracking.csv import CsvSink, read_csv
from retrograd.tracking.identity import recall
from retrograd.tracking.logger import Logger

TABLES = ("train", "update", "eval")
HERE = {name: find_spec(name) is not None for name in ("tensorboard", "wandb", "mlflow")}
needs_tensorboard = pytest.mark.skipif(not HERE["tensorboard"], reason='needs pip install "retrograd[tensorboard]"')
needs_wandb = pytest.mark.skipif(not HERE["wandb"], reason='needs pip install "retrograd[wandb]"')
needs_mlflow = pytest.mark.skipif(not HERE["mlflow"], reason='needs pip install "retrograd[mlflow]"')

ALIASES = {
    "charts/episodic_return": "train/episode_return",
    "charts/episodic_length": "train/episode_length",
    "charts/SPS": "update/steps_per_second",
    "losses/td_loss": "update/loss",
}
SMALL = ["train", "env=cartpole", "replay.capacity=2000", "training.warmup_random_steps=100"]
Series = dict[str, list[tuple[int, float]]]  # name -> (step, value) in the order they were written


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """One short training with every tracker that is installed."""
    folder = tmp_path_factory.mktemp("outputs")
    command = [
        "train", "env=CartPole-v1", "replay.capacity=2000", "training.warmup_random_steps=100",
        "training.total_env_frames=600", "training.log_every_steps=100", "training.light_eval_every_frames=300",
        "agent.batch_size=4", "eval.light_episodes=1", "eval.full_episodes=1", "eval.num_envs=1",
        "hardware.torch_threads=1", f"output_dir={folder}", "run_name=tracked", "wandb.mode=offline",
        "wandb.tags=[short, test]", "mlflow.tags=[short]", "mlflow.experiment=try",
        *(f"{name}.enabled=true" for name, here in HERE.items() if here),
    ]  # fmt: skip
    assert cli.main(command) == 0
    return folder / "tracked"


def from_csv(folder: Path) -> Series:
    series: Series = defaultdict(list)
    for table in TABLES:
        for row in read_csv(folder / f"{table}_log.csv"):
            for column, value in row.items():
                if column != "step" and isinstance(value, int | float):
                    series[f"{table}/{column}"].append((row["step"], value))
    for alias, name in ALIASES.items():
        if name in series:
            series[alias] = series[name]
    assert len(series["train/episode_return"]) > 5
    return series


def check(found: Series, folder: Path, convert: Any = float, but: range = range(0)) -> None:
    """Every figure of the CSV files is in the tracker, once, in order; what else is there is another alias."""
    expected = from_csv(folder)
    for name, points in expected.items():
        assert found[name] == [(step, convert(value)) for step, value in points if step not in but], name
    assert {name for name in found if name not in expected} <= {"charts/epsilon", "losses/q_values"}


def from_tensorboard(folder: Path) -> Series:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0, "images": 0, "tensors": 0})
    events.Reload()
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def wandb_records(path: Path) -> Iterator[Any]:
    """The records of a .wandb file: LevelDB's log format behind seven bytes, in blocks of 32 KiB."""
    from wandb.proto import wandb_internal_pb2

    data, position, parts = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while position + 7 <= len(data):
        left = 32768 - position % 32768
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        if position + 7 + length > len(data):  # still being written
            return
        parts += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last part
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def finished_records(path: Path) -> list[Any]:
    """All of a run that was finished: the process that writes the file may be a moment behind."""
    deadline = time.monotonic() + 60
    while True:
        records = list(wandb_records(path))
        if any(record.WhichOneof("record_type") == "exit" for record in records):
            return records
        assert time.monotonic() < deadline, f"{path} was not finished"
        time.sleep(0.1)


def wandb_lines(folder: Path) -> dict[int, dict[str, Any]]:
    """History lines by number over all offline files of a run, the earlier files first."""
    lines: dict[int, dict[str, Any]] = {}
    for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):  # the folders are named by the time
        for record in finished_records(path):
            if record.WhichOneof("record_type") == "history":
                items = {"/".join(item.nested_key) or item.key: item.value_json for item in record.history.item}
                lines[record.history.step.num] = {key: json.loads(text) for key, text in items.items()}
    return lines


def from_wandb(folder: Path) -> Series:
    series: Series = defaultdict(list)
    for _, line in sorted(wandb_lines(folder).items()):
        for name, value in line.items():
            if isinstance(value, int | float) and "/" in name and not name.startswith("video/"):
                series[name].append((line["step"], value))
    return series


def from_mlflow(uri: str, run_id: str) -> Series:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    return {
        name: [(entry.step, entry.value) for entry in sorted(client.get_metric_history(run_id, name), key=moment)]
        for name in client.get_run(run_id).data.metrics
    }


def moment(entry: Any) -> int:
    return int(entry.timestamp)


@needs_tensorboard
def test_tensorboard_holds_what_the_csv_files_hold(run):
    """REQ EXP-7; event files have 32-bit floats."""
    check(from_tensorboard(run), run, convert=lambda value: float(np.float32(value)))


@needs_tensorboard
def test_tensorboard_has_config_and_a_moving_picture(run):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(run / "tensorboard"), size_guidance={"images": 0, "tensors": 0})
    events.Reload()
    text = events.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "game_id: CartPole-v1" in text
    (image,) = events.Images("video")
    assert image.step == 600
    assert image.encoded_image_string[:6] == b"GIF89a"


@needs_wandb
def test_wandb_holds_what_the_csv_files_hold(run):
    """REQ EXP-7"""
    check(from_wandb(run), run)
    types = [line["eval/eval_type"] for _, line in sorted(wandb_lines(run).items()) if "eval/eval_type" in line]
    assert types == [row["eval_type"] for row in read_csv(run / "eval_log.csv")]


@needs_wandb
def test_wandb_has_config_tags_name_and_video(run):
    (path,) = run.glob("wandb/offline-run-*/run-*.wandb")
    (record,) = [record.run for record in wandb_records(path) if record.WhichOneof("record_type") == "run"][:1]
    config = {update.key: json.loads(update.value_json) for update in record.config.update}
    assert config["env"]["game_id"] == "CartPole-v1"
    assert (record.display_name, record.project, list(record.tags)) == ("tracked", "atari-dqn", ["short", "test"])
    assert record.run_id == recall(run, "wandb")
    assert len(list(run.glob("wandb/offline-run-*/files/media/videos/*.mp4"))) == 1


@needs_mlflow
def test_mlflow_holds_what_the_csv_files_hold(run):
    """REQ EXP-7: a local SQLite store in the output folder."""
    check(from_mlflow(f"sqlite:///{run.parent}/mlflow.db", str(recall(run, "mlflow"))), run)


@needs_mlflow
def test_mlflow_has_config_tags_name_and_video(run):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{run.parent}/mlflow.db")
    stored = client.get_run(str(recall(run, "mlflow")))
    assert (stored.info.run_name, stored.info.status, stored.data.tags["tags"]) == ("tracked", "FINISHED", "short")
    assert stored.data.params["env.game_id"] == "CartPole-v1"
    assert client.get_experiment(stored.info.experiment_id).name == "try"
    assert (run.parent / "mlflow_artifacts" / stored.info.run_id / "artifacts" / "config.yaml").is_file()
    assert [file.path for file in client.list_artifacts(stored.info.run_id, "videos")] == ["videos/step_000000600.mp4"]


SUMMARY = dict.fromkeys(
    ("mean_return", "std_return", "min_return", "max_return", "median_return", "mean_length", "human_normalized"), 2.5
)


def play(logger: Logger, steps: range) -> None:
    """What a run would log; equal steps give equal rows."""
    for step in steps:
        logger.log_episode(Episode(0, step / 7, step, 4 * step), step=step, env_frames=4 * step)
        logger.log_episode(Episode(1, step / 7, step, 4 * step), step=step, env_frames=4 * step)
        if step % 2 == 0:
            logger.log_step(step=step, env_frames=4 * step, extra={"loss": 1 / step, "steps_per_second": 5.0})
        if step % 4 == 0:
            logger.log_evaluation(SUMMARY, step=step, env_frames=4 * step, eval_type="full")


def kill_and_resume(folder: Path, make_sink: Any, end: Any = lambda sink: None) -> None:
    """Rows up to a checkpoint at 6, more up to a kill at 9; a new sink goes on from 6 to 12."""
    sink = make_sink()
    first = Logger([CsvSink(folder), sink])
    play(first, range(1, 7))
    saved = json.loads(json.dumps(first.state_dict()))
    play(first, range(7, 10))
    first.save_logs()
    end(sink)
    second = Logger([CsvSink(folder), make_sink()])
    second.load_state_dict(saved)  # cuts the CSV files back to the rows of the checkpoint
    play(second, range(7, 13))
    second.close()


def pause(folder: Path, make_sink: Any) -> range:
    """Rows up to 6, then a resumed run without the tracker up to 8, then one with it up to 12; the steps without."""
    first = Logger([CsvSink(folder), make_sink()])
    play(first, range(1, 7))
    saved = first.state_dict()
    first.close()
    without = Logger([CsvSink(folder)])
    without.load_state_dict(saved)
    play(without, range(7, 9))
    saved = without.state_dict()
    without.close()
    third = Logger([CsvSink(folder), make_sink()])
    third.load_state_dict(saved)
    play(third, range(9, 13))
    third.close()
    return range(7, 9)


def begin_again(folder: Path, make_sink: Any) -> None:
    """Rows up to a kill at 5, before the first checkpoint; a new sink begins again and goes on to 12."""
    first = Logger([CsvSink(folder), make_sink()])
    play(first, range(1, 6))
    first.save_logs()
    second = Logger([CsvSink(folder), make_sink()])
    second.begin_again()
    play(second, range(1, 13))
    second.close()


@needs_tensorboard
@pytest.mark.parametrize("resume", [pause, begin_again])
def test_tensorboard_after_a_resume_without_its_state_has_each_row_once(tmp_path, resume):
    from retrograd.tracking.tensorboard import TensorBoardSink

    but = resume(tmp_path, lambda: TensorBoardSink(tmp_path)) or range(0)
    check(from_tensorboard(tmp_path), tmp_path, convert=lambda value: float(np.float32(value)), but=but)


@needs_mlflow
@pytest.mark.parametrize("resume", [pause, begin_again])
def test_mlflow_after_a_resume_without_its_state_has_each_row_once(run, tmp_path, resume):
    from retrograd.tracking.mlflow import MlflowSink, local_store

    uri = local_store(run.parent)  # a new store takes seconds to make
    but = resume(tmp_path, lambda: MlflowSink(tmp_path, experiment="pause", tracking_uri=uri)) or range(0)
    check(from_mlflow(uri, str(recall(tmp_path, "mlflow"))), tmp_path, but=but)


@needs_tensorboard
def test_tensorboard_after_a_kill_has_each_row_once(tmp_path):
    from retrograd.tracking.tensorboard import TensorBoardSink

    kill_and_resume(tmp_path, lambda: TensorBoardSink(tmp_path))
    check(from_tensorboard(tmp_path), tmp_path, convert=lambda value: float(np.float32(value)))


@needs_wandb
def test_wandb_after_a_kill_has_each_row_once(tmp_path):
    from retrograd.tracking.wandb import WandbSink

    def end(sink: WandbSink) -> None:
        sink.close()  # its service takes no second run of one name while the first is open
        time.sleep(1.1)  # and names its folders by the second

    kill_and_resume(tmp_path, lambda: WandbSink(tmp_path, project="p", mode="offline"), end)
    check(from_wandb(tmp_path), tmp_path)
    ids = {path.stem for path in tmp_path.glob("wandb/offline-run-*/run-*.wandb")}
    assert ids == {f"run-{recall(tmp_path, 'wandb')}"}


@needs_mlflow
def test_mlflow_after_a_kill_has_each_row_once(run, tmp_path):
    from retrograd.tracking.mlflow import MlflowSink, local_store

    uri = local_store(run.parent)  # a new store takes seconds to make
    kill_and_resume(tmp_path, lambda: MlflowSink(tmp_path, experiment="kill", tracking_uri=uri))
    check(from_mlflow(uri, str(recall(tmp_path, "mlflow"))), tmp_path)


@needs_mlflow
def test_mlflow_sends_again_what_a_server_refused(run, tmp_path, monkeypatch):
    from retrograd.tracking.mlflow import MlflowSink, local_store

    uri = local_store(run.parent)
    sink = MlflowSink(tmp_path, experiment="busy", tracking_uri=uri)
    log_batch, refusals = sink._client.log_batch, [OSError("busy"), OSError("busy")]

    def refuse(*args: Any, **options: Any) -> None:
        if refusals:
            raise refusals.pop()
        log_batch(*args, **options)

    monkeypatch.setattr(sink._client, "log_batch", refuse)
    logger = Logger([CsvSink(tmp_path), sink])
    play(logger, range(1, 9))
    logger.close()
    assert not refusals
    check(from_mlflow(uri, str(recall(tmp_path, "mlflow"))), tmp_path)


@pytest.mark.parametrize("tracker", HERE)
def test_a_missing_package_is_named_before_anything_is_made(tracker, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, tracker, None)
    command = [
        "train",
        "env=cartpole",
        "replay.capacity=2000",
        "training.warmup_random_steps=100",
        "wandb.mode=offline",
    ]
    assert cli.main([*command, f"{tracker}.enabled=true", f"output_dir={tmp_path / 'outputs'}"]) == 2
    assert (
        f'{tracker}.enabled=true needs an optional part: pip install "retrograd[{tracker}]"' in capsys.readouterr().err
    )
    assert not (tmp_path / "outputs").exists()


@needs_wandb
def test_wandb_without_a_login_is_refused_at_once(tmp_path, monkeypatch, capsys):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    assert cli.main([*SMALL, "wandb.enabled=true", f"output_dir={tmp_path / 'outputs'}"]) == 2
    assert "wandb login" in capsys.readouterr().err
    assert not (tmp_path / "outputs").exists()


@needs_mlflow
def test_an_mlflow_server_that_is_not_there_leaves_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    uri = f"mlflow.tracking_uri='http://127.0.0.1:{free_port()}'"
    assert cli.main([*SMALL, "mlflow.enabled=true", uri, f"output_dir={tmp_path}", "run_name=x"]) == 2
    assert "cannot be used" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


@pytest.fixture
def server(tmp_path) -> Iterator[str]:
    """A real MLflow server on loopback, ended with the test."""
    port, log = free_port(), tmp_path / "server.log"
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{tmp_path}/server.db", "--artifacts-destination", str(tmp_path / "files"),
    ]  # fmt: skip
    environment = os.environ | {"MLFLOW_DISABLE_TELEMETRY": "true"}
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=tmp_path, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 120
        while not answers(port):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, 15)
        process.wait(timeout=30)


def answers(port: int) -> bool:
    from urllib.request import urlopen

    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


@needs_mlflow
@pytest.mark.trackers
def test_mlflow_server_holds_what_the_csv_files_hold(server, tmp_path):
    """REQ EXP-7: a whole run against a real server, videos and config uploaded."""
    from mlflow import MlflowClient

    command = [
        "train", "env=CartPole-v1", "agent=random", "replay.capacity=2000", "training.total_env_frames=400",
        "training.log_every_steps=100", "eval.full_episodes=1", "eval.num_envs=1", f"output_dir={tmp_path / 'o'}",
        "run_name=x", "mlflow.enabled=true", f"mlflow.tracking_uri='{server}'",
    ]  # fmt: skip
    assert cli.main(command) == 0
    run_id = str(recall(tmp_path / "o" / "x", "mlflow"))
    check(from_mlflow(server, run_id), tmp_path / "o" / "x")
    client = MlflowClient(tracking_uri=server)
    assert {file.path for file in client.list_artifacts(run_id)} == {"config.yaml", "videos"}
    fetched = client.download_artifacts(run_id, "videos/step_000000400.mp4", str(tmp_path))
    assert Path(fetched).read_bytes() == (tmp_path / "o/x/checkpoints/best/video.mp4").read_bytes()
    assert not (tmp_path / "o" / "mlflow.db").exists()
    shutil.rmtree(tmp_path / "o")
