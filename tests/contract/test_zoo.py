"""The zoo: every preset, found by glob, parses, builds and plays; what a user adds is found as well."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from retrograd import cli
from retrograd.config import SHIPPED, ConfigManager
from retrograd.core.errors import UsageError
from retrograd.experiments.zoo import Zoo
from retrograd.tracking.csv import read_csv

GAMES = ("pong", "breakout", "space_invaders", "seaquest", "qbert")
AGENTS = ("dqn", "modern", "rainbow", "c51", "qr_dqn", "a2c", "ppo", "recurrent_ppo", "cpu")
ZOO = ConfigManager(None).zoo()
STEPS = 200


def small(agent: Mapping[str, Any]) -> list[str]:
    """The same agent with one game, little to hold and little to learn from."""
    words = ["hardware.torch_threads=1", "hardware.env_threads=1", "training.num_envs=2", "env_protocol.noop_max=1"]
    if agent["kind"] == "value":
        words += ["replay.capacity=1000", "training.warmup_random_steps=190", "agent.batch_size=2"]
    for key, value in {"rollout_steps": 100, "epochs": 1, "minibatches": 2}.items():
        words += [f"agent.{key}={value}"] if key in agent else []
    return words


def test_every_promised_preset_is_there():
    """REQ EXP-6"""
    assert {f"{game}_{agent}" for game in GAMES for agent in AGENTS} <= set(ZOO.presets)


def test_every_file_is_a_recipe_or_a_manifest():
    files = {path.stem for path in SHIPPED.glob("zoo/**/*.yaml")}
    recipes = {preset.path.stem for preset in ZOO.presets.values()}
    assert files == recipes | {name.split("/")[-1] for name in ZOO.benchmarks}


@pytest.mark.parametrize("name", ZOO.presets)
def test_preset_parses(name):
    config = ConfigManager(None).compose([f"zoo={name}"])
    assert config["zoo"] == name
    assert config["env"]["name"] == ZOO.presets[name].game
    assert config["agent"]["name"] == ZOO.presets[name].word("agent")


def each_recipe_by_turns() -> Iterator[Any]:
    """Every preset; in make test each recipe plays one game, and every game is played, the others by night."""
    for number, name in enumerate(ZOO.presets):  # the games of a recipe follow one another
        recipe, place = divmod(number, len(GAMES))
        yield pytest.param(name, marks=() if place == recipe % len(GAMES) else pytest.mark.nightly)


@pytest.mark.parametrize("name", list(each_recipe_by_turns()))
def test_preset_builds_and_takes_200_steps(name):
    """REQ EXP-6; updates are among them."""
    from retrograd.build import Builder
    from retrograd.build.run import make_plan
    from retrograd.core.types import Update
    from retrograd.training.run import Run

    manager = ConfigManager(None)
    config = manager.compose([f"zoo={name}"])
    frames = f"training.total_env_frames={4 * STEPS}"
    tiny = manager.compose([f"zoo={name}", frames, *small(config["agent"])])
    builder = Builder(tiny)
    envs = builder.environments()
    updates: list[Update] = []
    run = Run(make_plan(tiny, envs.spec), on_episode=lambda *_: None, on_update=updates.append)
    try:
        loop = builder.loop(builder.agent(envs.spec), envs, run)[0]
        for _ in loop():
            run.take_due()
    finally:
        envs.close()
    assert run.step >= STEPS
    assert all(bool(value == value) for update in updates for value in update.metrics.values())
    assert updates


@pytest.mark.parametrize("preset", ZOO.presets.values(), ids=lambda preset: preset.name)
def test_preset_says_where_it_comes_from(preset):
    assert preset.provenance["source"]
    assert preset.word("agent")
    assert preset.word("env_protocol")
    assert preset.measured is None or {"mean_return", "seeds", "frames", "commit"} <= preset.measured.keys()


def test_tracks_a_and_b_are_in_it():
    manager = ConfigManager(None)
    assert manager.compose(["zoo=seaquest_dqn"])["track"] == "A"
    assert manager.compose(["zoo=seaquest_modern"])["track"] == "B"


def test_space_invaders_rainbow_is_counted_in_episodes():
    """REQ RUN-13"""
    config = ConfigManager(None).compose(["zoo=space_invaders_rainbow"])
    keys = ("total_episodes", "max_episode_steps", "eval_every_episodes", "checkpoint_every_episodes")
    assert [config["training"][key] for key in keys] == [1000, 10000, 50, 100]
    assert config["eval"]["full_episodes"] == 5


def test_single_keys_and_groups_override_a_preset(tmp_path):
    manager = ConfigManager(None)
    config = manager.compose(["zoo=pong_ppo", "env=breakout", "preset.lr=0.5", "training.total_env_frames=1000"])
    assert (config["env"]["name"], config["preset"]["lr"], config["training"]["total_env_frames"]) == (
        "breakout",
        0.5,
        1000,
    )
    file = tmp_path / "mine.yaml"
    file.write_text("zoo: pong_ppo\ntraining: {total_env_frames: 2000}\nagent: {epochs: 2}\n")
    config = manager.compose(["agent.epochs=3"], file)
    assert (config["zoo"], config["training"]["total_env_frames"], config["agent"]["epochs"]) == ("pong_ppo", 2000, 3)


def test_a_saved_config_keeps_the_preset():
    from retrograd.config import from_saved

    config = ConfigManager(None).compose(["zoo=pong_c51"])
    assert from_saved(yaml.safe_load(config.to_yaml())) == config
    old = yaml.safe_load(config.to_yaml())
    del old["zoo"]
    assert from_saved(old)["zoo"] is None


def test_unknown_preset_gets_the_nearest_name():
    with pytest.raises(UsageError, match="'pong_ppo'"):
        ConfigManager(None).compose(["zoo=pong_pppo"])


class TestCommand:
    def test_list_filters(self, capsys):
        assert cli.main(["zoo", "list", "--game", "pong", "--agent", "ppo", "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert [preset["name"] for preset in told["presets"]] == ["pong_cpu", "pong_ppo"]
        assert told["benchmarks"][0]["name"] == "atari/benchmark"

    def test_list_is_a_table(self, capsys):
        assert cli.main(["zoo", "list"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == len(ZOO.presets) + 3
        assert "40,000,000" in next(line for line in lines if line.startswith("pong_ppo"))

    @pytest.mark.parametrize(
        ("words", "told"),
        [
            (["list", "--game", "pnog"], "'pong'"),
            (["show", "pong_dqnn"], "'pong_dqn'"),
            (["run", "atari/benchmrk"], "'atari/benchmark'"),
            (["run", "pong_ppo", "--seeds", "0"], "at least 1"),
            (["run", "pong_ppo", "seed=a", "--seeds", "2"], "whole number"),
        ],
    )
    def test_mistakes_are_named(self, words, told, capsys):
        assert cli.main(["zoo", *words]) == 2
        assert told in capsys.readouterr().err

    def test_show_has_provenance_and_config(self, capsys):
        assert cli.main(["zoo", "show", "breakout_rainbow"]) == 0
        told = yaml.safe_load(capsys.readouterr().out)
        assert "Hessel" in told["provenance"]["source"]
        assert told["config"]["env"]["game_id"] == "ALE/Breakout-v5"
        assert cli.main(["zoo", "show", "atari/benchmark", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["presets"]) == 40

    def test_run_trains(self, tmp_path, capsys):
        assert cli.main(["zoo", "run", "pong_ppo", "--frames", "400", *quick("pong_ppo", tmp_path), "seed=5"]) == 0
        (folder,) = tmp_path.glob("pong_ppo_seed5_*")
        assert json.loads((folder / "summary.json").read_text())["env_frames"] >= 400
        assert yaml.safe_load((folder / ".hydra/config.yaml").read_text())["zoo"] == "pong_ppo"
        assert (folder / "plots" / "learning_curves.png").is_file()
        assert f"curve: {folder / 'plots' / 'learning_curves.png'}" in capsys.readouterr().err

    @pytest.mark.slow
    def test_a_race_is_run_to_its_end(self, tmp_path, capsys):
        words = [*quick("pong_cpu", tmp_path), "seed=5"]
        assert cli.main(["zoo", "run", "pong_cpu", "--frames", "4000", *words]) == 0
        told, said = capsys.readouterr()
        outcome = json.loads(told)
        assert (outcome["runs"], outcome["finished"], outcome["pruned"]) == (4, 1, 3)
        winner = Path(outcome["winner"])
        assert Path(outcome["sweep"]).name.startswith("pong_cpu_")
        assert json.loads((winner / "summary.json").read_text())["env_frames"] >= 4000
        assert f"curve: {winner / 'plots' / 'learning_curves.png'}" in said
        steps = {path: read_csv(path / "update_log.csv")[-1]["step"] for path in winner.parent.iterdir()}
        assert sorted(steps.values())[:3] == [150, 150, 150]  # 600 frames: 0.15 of the budget
        assert {line.rsplit("_seed", 1)[1] for line in map(str, steps)} == {"5", "6", "7", "8"}

    def test_a_race_takes_its_share_of_the_budget_that_was_asked_for(self, tmp_path, capsys):
        command = ["zoo", "run", "pong_cpu", "--dry-run", f"output_dir={tmp_path}"]
        for words, frames in ([], 1_800_000), (["--frames", "100000"], 15_000):
            assert cli.main([*command, *words]) == 0
            told = json.loads(capsys.readouterr().out)
            assert told["race_frames"] == frames
            assert [run["overrides"][1] for run in told["runs"]] == [f"seed={seed}" for seed in range(4)]
        assert cli.main([*command, "--seeds", "2"]) == 0
        assert "race_frames" not in json.loads(capsys.readouterr().out)

    def test_several_seeds_are_a_sweep(self, tmp_path, capsys):
        command = ["zoo", "run", "pong_ppo", "--seeds", "2", "seed=3", "--frames", "800", "--dry-run"]
        assert cli.main([*command, f"output_dir={tmp_path}"]) == 0
        runs = json.loads(capsys.readouterr().out)["runs"]
        assert [run["frames"] for run in runs] == [800, 800]
        assert [[word for word in run["overrides"] if "seed=" in word] for run in runs] == [["seed=3"], ["seed=4"]]


def quick(preset: str, folder: Path) -> list[str]:
    """What lets a preset be run in a moment."""
    agent = ConfigManager(None).compose([f"zoo={preset}"])["agent"]
    words = ["eval.full_episodes=1", "eval.record_video=false", "eval.num_envs=1", "training.log_every_steps=50"]
    return [*small(agent), *words, "env_protocol.eval_max_episode_frames=200", f"output_dir={folder}"]


def write(folder: Path, name: str, content: Any) -> Path:
    path = folder / "zoo" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return folder


def test_a_user_adds_and_replaces(tmp_path):
    mine = {"overrides": ["agent=dqn"], "provenance": {"source": "me"}, "games": {"cartpole": {}, "pong": None}}
    write(tmp_path, "mine.yaml", mine)
    write(tmp_path, "atari/ppo.yaml", mine)
    config = ConfigManager(tmp_path).compose(["zoo=cartpole_mine"])
    assert config["env"]["game_id"] == "CartPole-v1"
    assert ConfigManager(tmp_path).compose(["zoo=pong_ppo"])["agent"]["name"] == "dqn"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[1, 2", "cannot be read"),
        ({"title": "x"}, "games"),
        ({"games": {"pong": {}}, "provenance": {"source": "x"}, "overides": []}, "'overrides'"),
        ({"games": {"pong": {}}}, "where the settings come from"),
        ({"games": {"pong": {"score": 3}}, "provenance": {"source": "x"}}, "unknown key score"),
        ({"games": [1], "provenance": {"source": "x"}}, "at least one game"),
        ({"games": {"pong": {}}, "provenance": {"source": "x"}, "overrides": "agent=dqn"}, "list of key=value"),
        ({"games": {"pong": {}}, "provenance": {"source": "x"}, "race": {"runs": 4, "share": 1.5}}, "between 0 and 1"),
        ({"games": {"pong": {}}, "provenance": {"source": "x"}, "race": {"runs": 1, "share": 0.1}}, "at least 2"),
        ({"presets": ["pong_nothing"]}, "no preset is called"),
        ({"presets": ["pong_ppo"], "seeds": 0}, "at least 1"),
    ],
)
def test_a_wrong_file_is_named(content, told, tmp_path):
    write(tmp_path, "wrong.yaml", content)
    with pytest.raises(UsageError) as caught:
        Zoo.read([tmp_path / "zoo", SHIPPED / "zoo"])
    assert told in str(caught.value)
    assert "wrong.yaml" in str(caught.value)
