"""Bundles: small, whole, harmless, and accepted wherever an agent is meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import yaml

from retrograd import cli
from retrograd.tracking.csv import read_csv
from retrograd.training.bundle import _halve
from retrograd.training.plain import FORMAT, copy_plain, load_tensors, save_tensors

SMALL = [
    "env=cartpole", "training.total_env_frames=400", "training.num_envs=2", "training.log_every_steps=200",
    "eval.full_episodes=2", "eval.num_envs=2", "hardware.torch_threads=1", "wandb.entity=somebody", "run_name=x",
]  # fmt: skip
AGENTS = {
    "dqn": ["agent=dqn", "replay.capacity=1000", "training.warmup_random_steps=100", "eval.record_video=true"],
    "ppo": ["agent=ppo", "agent.rollout_steps=20", "eval.record_video=false", "training.normalize_observations=true"],
}


@pytest.fixture(scope="module", params=AGENTS)
def run(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("outputs")
    assert cli.main(["train", *SMALL, *AGENTS[request.param], f"output_dir={folder}"]) == 0
    return folder / "x"


def evaluate(path: Path, capsys) -> dict:
    capsys.readouterr()
    assert cli.main(["evaluate", str(path), "--episodes", "3"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_bundle_plays_as_its_checkpoint(run, tmp_path, capsys):
    target = tmp_path / "bundle"
    assert cli.main(["export", str(run), "--output", str(target)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["step"] == 400
    assert evaluate(target, capsys) == evaluate(run, capsys)


def test_a_bundle_holds_weights_card_and_nothing_that_runs(run, tmp_path, capsys):
    target = tmp_path / "bundle"
    assert cli.main(["export", str(run), "--output", str(target)]) == 0
    names = {path.name for path in target.iterdir()}
    required = {"agent.pt", "rng_states.pt", "metrics.json", "config.yaml", "README.md", "manifest.json"}
    assert required <= names <= required | {"video.mp4"}
    parts = torch.load(target / "agent.pt", weights_only=True)["parts"]
    assert parts.keys() <= {"online", "network", "normalizers"}
    assert "somebody" not in (target / "config.yaml").read_text()
    assert (target / "agent.pt").stat().st_size < (run / "checkpoints/best/agent.pt").stat().st_size / 2


def test_a_bundle_asks_for_bfloat16_only_where_the_processor_has_it(tmp_path):
    words = ["env=cartpole", "agent=ppo", "agent.rollout_steps=20", "training.num_envs=2", "eval.full_episodes=1"]
    words += ["training.total_env_frames=40", "eval.record_video=false", "hardware.autocast=bfloat16", "run_name=x"]
    assert cli.main(["train", *words, f"output_dir={tmp_path}"]) == 0
    assert cli.main(["export", str(tmp_path / "x"), "--output", str(tmp_path / "bundle")]) == 0
    assert yaml.safe_load((tmp_path / "bundle/config.yaml").read_text())["hardware"]["autocast"] == "native"


def test_the_card_has_scores_protocol_and_front_matter(run, tmp_path):
    target = tmp_path / "bundle"
    assert cli.main(["export", str(run), "--output", str(target)]) == 0
    _, front, text = (target / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(front)
    assert {"CartPole-v1", "reinforcement-learning", "deep-reinforcement-learning"} <= set(card["tags"])
    final = read_csv(run / "eval_log.csv")[-1]
    expected = f"{final['eval_mean_return']:.2f} +/- {final['eval_std_return']:.2f}"
    assert card["model-index"][0]["results"][0]["metrics"][0]["value"] == expected
    assert "retrograd evaluate bundle" in text
    assert "Protocol: CartPole-v1" in text
    assert ("video.mp4" in text) == (target / "video.mp4").is_file() == (run / "checkpoints/best/video.mp4").is_file()


def test_weights_with_two_names_are_saved_once(tmp_path):
    shared = torch.nn.Linear(300, 300)
    both = torch.nn.ModuleDict({"actor": shared, "critic": shared})
    for name, state in (
        ("once", copy_plain(both.state_dict(), "x")),
        ("half", _halve(copy_plain(both.state_dict(), "x"), {})),
    ):
        save_tensors(tmp_path / name, {"format": FORMAT, "parts": state})
        read = load_tensors(tmp_path / name, ("parts",))["parts"]
        assert all(torch.allclose(read[key].float(), both.state_dict()[key], atol=1e-3) for key in read)
    alone = sum(tensor.numel() * tensor.element_size() for tensor in shared.state_dict().values())
    assert alone < (tmp_path / "once").stat().st_size < 1.1 * alone
    assert (tmp_path / "half").stat().st_size < 0.6 * alone


def test_half_the_digits_half_the_size(run, tmp_path, capsys):
    whole, half = tmp_path / "whole", tmp_path / "half"
    assert cli.main(["export", str(run), "--output", str(whole)]) == 0
    assert cli.main(["export", str(run), "--output", str(half), "--fp16"]) == 0
    assert (half / "agent.pt").stat().st_size < 0.7 * (whole / "agent.pt").stat().st_size
    assert evaluate(half, capsys)["episodes"] == 3


def test_a_folder_that_exists_is_left_alone(run, tmp_path, capsys):
    assert cli.main(["export", str(run), "--output", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_card_may_be_edited_and_the_weights_may_not(run, tmp_path, capsys):
    target = tmp_path / "bundle"
    assert cli.main(["export", str(run), "--output", str(target)]) == 0
    (target / "README.md").write_text("in my own words")
    assert evaluate(target, capsys)["episodes"] == 3
    weights = bytearray((target / "agent.pt").read_bytes())
    weights[len(weights) // 2] ^= 1
    (target / "agent.pt").write_bytes(weights)
    assert cli.main(["evaluate", str(target)]) == 2
    assert "agent.pt" in capsys.readouterr().err
