"""A whole run on a real game: every promised file, repeatable, and usable afterwards."""

from __future__ import annotations

import csv
import json
import signal
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import yaml

from retrograd import cli
from retrograd.tracking.csv import TIME_COLUMNS

TINY = [
    "training.total_env_frames=2400",
    "training.warmup_random_steps=300",
    "training.log_every_steps=100",
    "training.light_eval_every_frames=1200",
    "agent.batch_size=8",
    "training.num_envs=2",
    "env_protocol.max_episode_frames=400",  # short games, so that some end
    "env_protocol.eval_max_episode_frames=400",
    "eval.light_episodes=2",
    "eval.full_episodes=3",
    "eval.num_envs=2",
    "replay.capacity=2000",
    "hardware.torch_threads=1",
]


def train(folder: Path, name: str, *overrides: str) -> Path:
    learns = not any(word in ("agent=random", "agent=constant") for word in overrides)
    tiny = [word for word in TINY if learns or not word.startswith("agent.")]
    assert cli.main(["train", *tiny, *overrides, f"output_dir={folder}", f"run_name={name}"]) == 0
    return folder / name


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return [{key: value for key, value in row.items() if key not in TIME_COLUMNS} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def pong(tmp_path_factory) -> Path:
    return train(tmp_path_factory.mktemp("outputs"), "pong")


def test_every_promised_file_is_there(pong):
    """REQ RUN-3"""
    names = ["train_log.csv", "update_log.csv", "eval_log.csv", "summary.json", "versions.json", ".hydra/config.yaml"]
    assert [name for name in names if not (pong / name).is_file()] == []
    catalog = json.loads((pong / "checkpoints/catalog.json").read_text())
    assert [set(entry) for entry in catalog] == [{"step", "path", "eval_score", "timestamp"}]
    checkpoint = pong / "checkpoints" / catalog[0]["path"]
    assert {path.name for path in checkpoint.iterdir()} >= {"agent.pt", "rng_states.pt", "metrics.json", "video.mp4"}
    assert (pong / "checkpoints/best").resolve() == (pong / "checkpoints/latest").resolve() == checkpoint.resolve()


def test_logs_have_the_promised_columns(pong):
    train_row, update_row = rows(pong / "train_log.csv")[0], rows(pong / "update_log.csv")[-1]
    assert list(train_row) == ["step", "env_frames", "episode_number", "episode_return", "episode_length"]
    assert list(update_row)[:7] == ["step", "env_frames", "epsilon", "loss", "mean_q", "max_q", "grad_norm"]
    assert float(update_row["loss"]) >= 0.0
    assert float(update_row["epsilon"]) < 1.0
    assert [row["eval_type"] for row in rows(pong / "eval_log.csv")] == ["light", "light", "final"]
    assert int(update_row["env_frames"]) == 4 * int(update_row["step"]) == 2400


def test_the_config_is_kept_with_its_track(pong):
    config = yaml.safe_load((pong / ".hydra/config.yaml").read_text())
    assert config["env"]["game_id"] == "ALE/Pong-v5"
    assert config["track"] == "custom"  # short games are not track A


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param((), marks=pytest.mark.nightly),
        ("replay=prioritized", "replay.storage=compressed", "env=breakout"),
    ],
    ids=["as shipped", "prioritized"],
)
def test_two_runs_are_identical(tmp_path, overrides):
    """REQ RUN-9: two runs of one config and seed give identical logs."""
    first, second = (train(tmp_path, name, "eval.record_video=false", *overrides) for name in ("first", "second"))
    for name in ("train_log.csv", "update_log.csv", "eval_log.csv"):
        assert rows(first / name) == rows(second / name), name
    assert len(rows(first / "train_log.csv")) > 0


@pytest.mark.nightly
def test_another_seed_is_another_run(pong, tmp_path):
    other = train(tmp_path, "other", "eval.record_video=false", "seed=7")
    assert rows(pong / "update_log.csv") != rows(other / "update_log.csv")


def test_evaluate_prints_json_alone(pong, capsys):
    """REQ RUN-7"""
    best = f"+checkpoint_path={pong}/checkpoints/best"
    assert cli.main(["evaluate", best, "--episodes", "2", "eval.epsilon=0.5"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == {
        "mean_return", "std_return", "min_return", "max_return", "median_return", "mean_length",
        "human_normalized", "episodes", "returns", "step", "game", "protocol",
    }  # fmt: skip
    assert (result["episodes"], len(result["returns"]), result["game"]) == (2, 2, "pong")


def test_video_plays(pong, tmp_path, capsys):
    """REQ RUN-8"""
    target = tmp_path / "game.mp4"
    assert cli.main(["video", str(pong), f"+output_video={target}"]) == 0
    told = json.loads(capsys.readouterr().out)
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(target))
    assert (frames, told["fps"]) == (told["frames"], 30)
    assert seconds == pytest.approx(frames / 30, abs=0.1)


def test_conflicting_overrides_are_refused(pong, capsys):
    """REQ RUN-6"""
    assert cli.main(["evaluate", str(pong), "agent.network=dueling"]) == 2
    assert "conflicts with the checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("agent", ["random", "constant"])
def test_agents_that_do_not_learn_go_the_same_way(tmp_path, agent, capsys):
    """REQ ENV-9"""
    folder = train(tmp_path, agent, f"agent={agent}")
    assert (folder / "checkpoints/best/video.mp4").is_file()
    capsys.readouterr()
    assert cli.main(["evaluate", str(folder), "--episodes", "2"]) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_checkpoint_that_plays(tmp_path, number, code, monkeypatch, capsys):
    """REQ RUN-11, the stopping half"""
    from retrograd.training.trainer import Trainer

    advance, steps = Trainer.advance, []

    def interrupted(self):
        steps.append(self.run.step)
        if len(steps) == 200:
            signal.raise_signal(number)
        return advance(self)

    monkeypatch.setattr(Trainer, "advance", interrupted)
    command = ["train", *TINY, f"output_dir={tmp_path}", "run_name=stopped", "training.light_eval_every_frames=null"]
    assert cli.main(command) == code
    shown = capsys.readouterr()
    assert f"{number.name}: saving a checkpoint" in shown.err
    checkpoint = json.loads(shown.out)["checkpoint"]
    assert (tmp_path / "stopped/checkpoints/latest").resolve().name == checkpoint
    assert not (tmp_path / "stopped/summary.json").exists()
    assert signal.getsignal(number) is not None
    assert cli.main(["evaluate", str(tmp_path / "stopped"), "--episodes", "1"]) == 0


def test_a_failure_gate_stops_the_run_and_leaves_a_dump(tmp_path, capsys, monkeypatch):
    """REQ RUN-4"""
    import torch

    from retrograd.agents.dqn import DQNLoss

    calls = []
    compute = DQNLoss.__call__

    def poisoned(self, online, target, batch):
        calls.append(batch)
        out = compute(self, online, target, batch)
        if len(calls) == 20:
            out.per_sample.data[0] = torch.nan
        return out

    monkeypatch.setattr(DQNLoss, "__call__", poisoned)
    assert cli.main(["train", *TINY, f"output_dir={tmp_path}", "run_name=poisoned"]) == 5
    assert "Failure gate triggered: non-finite loss" in capsys.readouterr().err
    report = json.loads((tmp_path / "poisoned/failure.json").read_text())
    assert report["step"] > 300
    assert len(calls) == 20
    with np.load(tmp_path / "poisoned" / report["batch"], allow_pickle=False) as dump:
        np.testing.assert_array_equal(dump["obs"], calls[-1].obs.numpy())
        np.testing.assert_array_equal(dump["index"], calls[-1].index)
