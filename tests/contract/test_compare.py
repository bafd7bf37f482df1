"""``retrograd compare`` and ``reference``: tables, files, refusals (REQ EXP-2, EXP-3, EXP-4)."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from retrograd.cli import main
from retrograd.core import statistics
from retrograd.experiments import reference

SCORES = {"dqn": (1.0, 2.0, 3.0, 4.0, 5.0), "ppo": (6.0, 7.0, 8.0)}


def write_run(folder: Path, *, score: float, game: str = "Pong", frames: int = 2_000_000, **changes: Any) -> Path:
    config: dict[str, Any] = {
        "seed": 0,
        "env": {"name": game.lower(), "game_id": f"ALE/{game}-v5"},
        "agent": {"name": "dqn"},
        "env_protocol": {"repeat_action_probability": 0.0},
        "eval": {"epsilon": 0.05},
    }
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text(yaml.safe_dump(config | changes))
    rows = "".join(f"{f // 4},{f},light,{score * f / frames},1,0,0\n" for f in (frames // 4, frames // 2, frames))
    head = "step,env_frames,eval_type,eval_mean_return,eval_std_return,eval_min_return,eval_max_return\n"
    (folder / "eval_log.csv").write_text(head + rows)
    return folder


def write_runs(root: Path, game: str = "Pong") -> list[str]:
    return [
        str(write_run(root / f"{game}_{agent}_{seed}", score=score, game=game, seed=seed, agent={"name": agent}))
        for agent, scores in SCORES.items()
        for seed, score in enumerate(scores)
    ]


def compare(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, Any], str]:
    assert main(["compare", *arguments]) == 0
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


def test_seeds_are_taken_together_and_summed_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, text = compare(capsys, *write_runs(tmp_path), "--no-plots", "--threshold", "3")
    (panel,) = table["panels"]
    dqn, ppo = panel["groups"]
    assert (dqn["label"], dqn["seeds"], dqn["env_frames"], dqn["scored_on"]) == ("dqn", 5, 2_000_000, "evaluation")
    assert (dqn["median"], dqn["q1"], dqn["q3"], dqn["iqm"]["point"]) == (3.0, 2.0, 4.0, 3.0)
    assert dqn["iqm"]["low"] < 3.0 < dqn["iqm"]["high"]
    assert dqn["human_normalized"] == pytest.approx((3 + 20.7) / (14.6 + 20.7))
    assert [run["value"] for run in ppo["runs"]] == [6.0, 7.0, 8.0]
    assert dqn["frames_to_threshold"] == {"threshold": 3.0, "reached": 3, "median_frames": 2_000_000}
    assert ppo["frames_to_threshold"]["median_frames"] == 1_000_000
    (pair,) = panel["improvement"]
    assert (pair["first"], pair["second"], pair["point"]) == ("ppo", "dqn", 1.0)
    assert dqn["stability"]["long_term_risk"] == 0.0
    assert "reference" not in panel
    assert table["plots"] == []
    assert "3 [2, 4]" in text
    assert any("3 seeds are too narrow" in note for note in table["notes"])


def test_the_same_runs_give_the_same_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = write_runs(tmp_path)
    assert compare(capsys, *runs, "--no-plots") == compare(capsys, *runs, "--no-plots")
    wide, _ = compare(capsys, *runs, "--no-plots", "--confidence", "0.99")
    usual, _ = compare(capsys, *runs, "--no-plots")
    widths = [
        t["panels"][0]["groups"][0]["iqm"]["high"] - t["panels"][0]["groups"][0]["iqm"]["low"] for t in (wide, usual)
    ]
    assert widths[0] > widths[1]


def test_published_figures_are_of_the_same_game_and_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [
        write_run(tmp_path / "plain", score=1.0),
        write_run(tmp_path / "sticky", score=1.0, env_protocol={"repeat_action_probability": 0.25}),
        write_run(tmp_path / "odd", score=1.0, env_protocol={"repeat_action_probability": 0.1}),
    ]
    table, text = compare(capsys, *map(str, runs), "--no-plots", "--reference")
    families = {panel["family"]: panel["reference"] for panel in table["panels"]}
    for family in ("no_sticky", "sticky"):
        found = {(curve["algorithm"], curve["source"]) for curve in families[family]["curves"]}
        assert found == {(curve.algorithm, curve.source) for curve in reference.curves("pong", family)}
        assert {score["protocol"] for score in families[family]["scores"]} <= {
            name for name, (of, _) in reference.PROTOCOLS.items() if of == family
        }
    assert families[None] == {"curves": [], "scores": []}
    assert any("repeat probability 0.1" in note and "nothing is published" in note for note in table["notes"])
    assert any("not mixed" in note for note in table["notes"])
    (nnabla,) = (c for c in families["no_sticky"]["curves"] if (c["algorithm"], c["source"]) == ("DQN", "nnabla"))
    (curve,) = (c for c in reference.curves("pong", "no_sticky") if (c.algorithm, c.source) == ("DQN", "nnabla"))
    assert nnabla["mean_return"] == curve.mean_return[curve.frames.index(2_000_000)]
    assert "DQN, nnabla-rl, evaluation" in text


def test_games_are_aggregated_by_human_normalized_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = write_runs(tmp_path) + write_runs(tmp_path, "Breakout")
    table, text = compare(capsys, *runs, "--no-plots")
    (entry,) = table["across_games"]
    assert entry["games"] == ["Breakout", "Pong"]
    scores = np.array(SCORES["dqn"])
    matrix = np.stack([(scores - 1.7) / (30.5 - 1.7), (scores + 20.7) / (14.6 + 20.7)], axis=1)
    for name, statistic in (("iqm", statistics.iqm), ("optimality_gap", statistics.optimality_gap)):
        assert entry["human_normalized"]["dqn"][name]["point"] == pytest.approx(float(statistic(matrix)))
    assert "human-normalized, 2 games, no sticky actions" in text


def test_files_are_written_beside_the_plots(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write_run(tmp_path / name, score=1.0, game="CartPole", frames=50_000) for name in "ab"]
    table, _ = compare(capsys, str(runs[0]), "--output", str(tmp_path / "out"))
    names = {Path(path).name for path in table["plots"]}
    stems = [f"{stem}{theme}" for stem in ("learning_curves", "algorithm_comparison") for theme in ("", "_dark")]
    assert names == {f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")}
    assert all(Path(path).stat().st_size for path in table["plots"])
    assert json.loads((tmp_path / "out" / "comparison.json").read_text()) == table
    with (tmp_path / "out" / "comparison.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["game"], row["config"], row["seed"], float(row["value"])) == ("CartPole", "dqn", "0", 1.0)


def test_a_repeated_seed_is_no_new_evidence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = write_run(tmp_path / "short", score=1.0, frames=1_000_000)
    longer = write_run(tmp_path / "long", score=2.0)
    table, text = compare(capsys, str(short), str(longer), str(longer), "--no-plots")
    assert [run["run"] for run in table["panels"][0]["groups"][0]["runs"]] == [str(longer)]
    assert f"{short} repeats the seed of {longer}" in text


def test_a_folder_of_runs_is_searched_and_empty_ones_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "sweep" / "runs" / "a", score=1.0)
    write_run(tmp_path / "sweep" / "runs" / "b", score=2.0, seed=1)
    (tmp_path / "sweep" / "runs" / "empty" / ".hydra").mkdir(parents=True)
    table, text = compare(capsys, str(tmp_path / "sweep"), "--no-plots")
    assert table["panels"][0]["groups"][0]["seeds"] == 2
    assert "left out" in text
    assert "empty" in text


def test_unlike_runs_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_run(tmp_path / "a", score=1.0)
    second = write_run(tmp_path / "b", score=1.0, frames=1_000_000, eval={"epsilon": 0.001})
    table, _ = compare(capsys, str(first), str(second), "--no-plots", "--metric", "best")
    notes = " ".join(table["notes"])
    assert "different ε: 0.001, 0.05" in notes
    assert "1,000,000 to 2,000,000" in notes
    assert "flatters" in notes
    area, _ = compare(capsys, str(first), str(second), "--no-plots", "--metric", "auc")
    assert [g["median"] for g in area["panels"][0]["groups"]] == pytest.approx([0.375, 0.75])  # both from 0.5M to 1M


def test_training_returns_are_told_from_evaluations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [write_run(tmp_path / str(seed), score=10.0, seed=seed) for seed in range(3)]
    for run in runs:
        (run / "train_log.csv").write_text(
            "step,env_frames,episode_number,episode_return,episode_length\n500000,2000000,1,-20,100\n"
        )
    (runs[2] / "eval_log.csv").unlink()
    table, text = compare(capsys, *map(str, runs), "--no-plots")
    (group,) = table["panels"][0]["groups"]
    assert ([run["value"] for run in group["runs"]], group["scored_on"]) == ([10.0, 10.0], "evaluation")
    assert f"{runs[2]} has no evaluation" in text
    table, text = compare(capsys, *map(str, runs), "--no-plots", "--metric", "train", "--threshold", "5")
    (group,) = table["panels"][0]["groups"]
    assert ([run["value"] for run in group["runs"]], group["scored_on"]) == ([-20.0] * 3, "training return")
    assert group["frames_to_threshold"]["reached"] == 0
    assert "has no evaluation" not in text


def test_one_damaged_run_is_left_out_with_its_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "good", score=1.0)
    (write_run(tmp_path / "bad", score=1.0) / ".hydra" / "config.yaml").write_text("seed: [1\n")
    table, text = compare(capsys, str(tmp_path), "--no-plots")
    assert [run["run"] for run in table["panels"][0]["groups"][0]["runs"]] == [str(tmp_path / "good")]
    assert f"left out: '{tmp_path}/bad/.hydra/config.yaml' cannot be read" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["absent"], "no run folder"),
        (["a", "--metric", "finel"], "'final'"),
        (["a", "--confidence", "95"], "between 0 and 1"),
        (["a", "--smooth", "0"], "at least 1"),
        (["a", "--threshold", "nan"], "finite number"),
        (["a", "--output", "a/eval_log.csv"], "is a file"),
        (["empty"], "neither"),
        (["."], "no run"),
    ],
)
def test_bad_requests_write_nothing(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty" / ".hydra").mkdir(parents=True)
    if arguments != ["."]:
        write_run(tmp_path / "a", score=1.0)
    assert main(["compare", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert not (tmp_path / "outputs").exists()


def test_reference_lists_curves_scores_and_sources(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reference", "Ms. Pac-Man", "--protocol", "sticky", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert table["game"] == "MsPacman"
    assert table["baseline"] == {"random": 307.3, "human": 6951.6}
    assert {entry["family"] for entry in table["protocols"].values()} == {"sticky"}
    used = {figure["source"] for figure in (*table["curves"], *table["final_scores"])}
    assert used == {source["source"] for source in table["sources"]}
    assert all(source["origin"] and source["license"] for source in table["sources"])
    assert len(table["curves"]) == len(reference.curves("mspacman", "sticky"))
    assert main(["reference", "pong", "--protocol", "noop"]) == 0
    text = capsys.readouterr().out
    assert "Pong: random -20.7, human 14.6" in text
    assert "Hessel 2017" in text
    assert "sticky_train" not in text
    assert main(["reference", "--json"]) == 0
    games = {entry["game"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert len(games) >= 57
    assert games["Pong"]["curves"] == len(reference.curves("pong"))
    assert games["Pong"]["baseline"] is True


def test_a_wrong_game_or_protocol_gets_the_nearest_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reference", "breakuot"]) == 2
    assert "'Breakout'" in capsys.readouterr().err
    assert main(["reference", "pong", "--protocol", "no_stiky"]) == 2
    assert "'no_sticky'" in capsys.readouterr().err
