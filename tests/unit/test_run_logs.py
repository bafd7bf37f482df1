"""Which runs belong together, and one number for a run (REQ EXP-2, EXP-4)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from retrograd.core.errors import UsageError
from retrograd.experiments.measures import leave_out_unevaluated, measure, measure_groups, score_tables
from retrograd.experiments.runs import RunLog, find_runs, group_seeds, panels_of


def make_run(
    name: str = "run",
    *,
    game: str = "ALE/Pong-v5",
    agent: str = "dqn",
    protocol: dict[str, Any] | None = None,
    **more: Any,
) -> RunLog:
    config = {
        "seed": 0,
        "run_name": name,
        "hardware": {"device": "cpu"},
        "env": {"name": "x", "game_id": game},
        "agent": {"name": agent, "gamma": 0.99},
        "preset": {"lr": 0.1, "loss": "huber"},
        "env_protocol": {"repeat_action_probability": 0.0, "eval_max_episode_frames": 18000, "screen_size": 84},
    }
    config["env_protocol"] |= protocol or {}  # type: ignore[operator]
    for key, value in more.items():
        group, _, inner = key.partition("__")
        if inner:
            config[group] = config[group] | {inner: value}  # type: ignore[operator]
        else:
            config[group] = value
    frames = np.array([0.0, 1e6, 2e6])
    return RunLog(Path(name), config, frames, np.array([0.0, 8.0, 4.0]), np.zeros(3), frames, np.array([1.0, 2.0, 3.0]))


def groups(*runs: RunLog) -> dict[str, int]:
    return {group.label: len(group.runs) for group in group_seeds(runs)}


def test_seeds_names_and_machines_do_not_part_runs() -> None:
    runs = [make_run(str(seed), seed=seed, hardware={"device": f"cuda:{seed}"}) for seed in range(3)]
    assert groups(*runs) == {"dqn": 3}
    assert [run.seed for run in runs] == [0, 1, 2]


def test_configs_of_one_algorithm_are_told_apart_by_what_differs() -> None:
    runs = [make_run(), make_run(preset__lr=0.2), make_run(preset__lr=0.2, seed=1), make_run(agent="ppo", preset__lr=9)]
    assert groups(*runs) == {"dqn · lr=0.1": 1, "dqn · lr=0.2": 2, "ppo": 1}
    many = make_run(preset={"lr": 1, "loss": "mse"}, agent__gamma=0.9, training={"num_envs": 4})
    assert list(groups(make_run(), many))[1] == "dqn · gamma=0.9 loss=mse lr=1 +1 more"


def test_labels_are_never_the_same() -> None:
    base = {"agent__gamma": 0.5, "preset__lr": 1, "preset__loss": "mse"}
    runs = [make_run("a"), make_run("b", **base, z={"k": 1}), make_run("c", **base, z={"k": 2})]
    assert len(groups(*runs)) == 3


def test_a_protocol_that_scores_otherwise_gets_a_panel_of_its_own_and_says_why() -> None:
    runs = [make_run(), make_run(protocol={"eval_max_episode_frames": 108000}), make_run(protocol={"screen_size": 64})]
    panels = panels_of(runs)
    assert [panel.title for panel in panels] == [
        "Pong · no sticky actions · eval_max_episode_frames=18000",
        "Pong · no sticky actions · eval_max_episode_frames=108000",
    ]
    assert [len(panel.runs) for panel in panels] == [2, 1]  # what the learner sees does not change the score's meaning
    assert {panel.family for panel in panels} == {"no_sticky"}


def test_a_game_of_another_family_is_drawn_without_published_figures() -> None:
    run = make_run(game="MinAtar/Breakout-v1")
    assert (run.game, run.family, run.protocol_label) == ("MinAtar/Breakout-v1", None, "")
    assert len(panels_of([run, make_run(game="ALE/Breakout-v5")])) == 2


def test_another_version_is_another_game_but_on_atari() -> None:
    games = ("CartPole-v0", "CartPole-v1", "MinAtar/Breakout-v0", "MinAtar/Breakout-v1", "ALE/Pong-v5", "Pong-v4")
    panels = panels_of([make_run(game=game) for game in games])
    assert [panel.game for panel in panels] == [*games[:4], "Pong"]  # Atari's versions are spelled out by the protocol


def test_blank_frames_are_told_of_any_game() -> None:
    games = ("MinAtar/Breakout-v1", "ALE/Pong-v5")
    runs = [make_run(game=game, protocol={"flicker_probability": 0.5}) for game in games]
    assert [run.protocol_label for run in runs] == ["50% of frames blank", "no sticky actions, 50% of frames blank"]


def test_measures_of_a_run() -> None:
    run = make_run()
    assert [measure(run, metric) for metric in ("final", "best", "train")] == [4.0, 8.0, 2.0]
    assert measure(run, "auc") == pytest.approx((4 + 6) / 2)
    with pytest.raises(UsageError, match=r"'finel'.*'final'"):
        measure(run, "finel")


def test_scores_are_normalized_over_the_games_all_have_played() -> None:
    games = ("ALE/Pong-v5", "ALE/Breakout-v5", "ALE/Qbert-v5")
    runs = [make_run(game=game, seed=seed) for game in games[:2] for seed in range(2)]
    runs += [make_run(game=game, agent="ppo", seed=seed) for game in games for seed in range(3)]
    runs += [make_run(game="CartPole-v1")]
    (table,) = score_tables(panels_of(runs))
    assert table.games == ("Breakout", "Pong")
    assert {label: scores.shape for label, scores in table.scores.items()} == {"dqn": (2, 2), "ppo": (3, 2)}
    np.testing.assert_allclose(table.scores["dqn"][0], [(4 - 1.7) / (30.5 - 1.7), (4 + 20.7) / (14.6 + 20.7)])


def test_games_of_different_protocols_are_not_summed_up_together() -> None:
    long = {"eval_max_episode_frames": 108000}
    runs = [make_run(), make_run(game="ALE/Breakout-v5", protocol=long)]
    tables = score_tables(panels_of(runs))
    assert [(table.protocol, table.games) for table in tables] == [
        ("no sticky actions · eval_max_episode_frames=18000", ("Pong",)),
        ("no sticky actions · eval_max_episode_frames=108000", ("Breakout",)),
    ]
    runs += [make_run(protocol=long), make_run(game="ALE/Breakout-v5")]
    assert [table.games for table in score_tables(panels_of(runs))] == [("Breakout", "Pong")] * 2


def test_areas_are_measured_over_the_frames_all_runs_of_a_panel_have_seen() -> None:
    short = make_run(agent="ppo")
    short = replace(short, eval_frames=short.eval_frames[:2], eval_mean=short.eval_mean[:2])
    (panel,) = panels_of([make_run(), short])
    assert [scores.tolist() for scores in measure_groups(panel, "auc")] == [[4.0], [4.0]]


def test_a_run_with_a_training_return_alone_is_no_seed_of_an_evaluated_group() -> None:
    none = {"eval_frames": np.empty(0), "eval_mean": np.empty(0)}
    runs = [make_run("a"), replace(make_run("b", seed=1), **none), replace(make_run("c", agent="ppo"), **none)]
    panels, notes = leave_out_unevaluated(panels_of(runs), "final")
    assert [[str(run.folder) for run in group.runs] for group in panels[0].groups] == [["a"], ["c"]]
    assert notes == ["b has no evaluation, as other seeds of dqn have: left out"]
    panels, notes = leave_out_unevaluated(panels_of(runs), "train")
    assert ([len(group.runs) for group in panels[0].groups], notes) == ([2, 1], [])


def test_runs_are_found_below_a_folder_once(tmp_path: Path) -> None:
    for name in ("sweep/b", "sweep/a", "sweep/runs/c", "single"):
        (tmp_path / name / ".hydra").mkdir(parents=True)
        (tmp_path / name / ".hydra" / "config.yaml").write_text(yaml.safe_dump({"seed": 1}))
    found = find_runs([tmp_path / "single", tmp_path / "sweep", tmp_path / "sweep" / "a"])
    assert [str(path.relative_to(tmp_path)) for path in found] == ["single", "sweep/a", "sweep/b", "sweep/runs/c"]
    assert find_runs([tmp_path / "absent"]) == [tmp_path / "absent"]  # reading it gives the error
