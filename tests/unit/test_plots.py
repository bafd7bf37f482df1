"""Plots: what is read from run folders, and that protocols never share a panel (REQ EXP-3, EXP-4)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from retrograd.core.errors import UsageError
from retrograd.experiments import reference
from retrograd.experiments.plots import Plotter, read_run

EVAL_HEAD = "step,env_frames,eval_type,eval_mean_return,eval_std_return,eval_min_return,eval_max_return\n"
TRAIN_HEAD = "step,env_frames,episode_number,episode_return,episode_length\n"


def write_run(
    folder: Path,
    *,
    game: str = "ALE/Pong-v5",
    agent: str = "dqn",
    sticky: float = 0.0,
    score: float = 5.0,
    lr: float = 0.1,
) -> Path:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text(
        f"env: {{name: x, game_id: {game}}}\nagent: {{name: {agent}}}\npreset: {{lr: {lr}}}\n"
        f"env_protocol: {{repeat_action_probability: {sticky}}}\n"
    )
    evaluations = "".join(f"{f // 4},{f},light,{score * f / 2e6},1,0,0\n" for f in (500_000, 1_000_000, 2_000_000))
    (folder / "eval_log.csv").write_text(EVAL_HEAD + evaluations)
    episodes = "".join(f"{f // 4},{f},{i},{score},100\n" for i, f in enumerate(range(0, 2_000_000, 10_000)))
    (folder / "train_log.csv").write_text(TRAIN_HEAD + episodes)
    return folder


def labels(axis: object) -> list[str]:
    return [text.get_text() for text in axis.get_legend().get_texts()]  # type: ignore[attr-defined]


def test_a_run_is_read_with_its_game_agent_and_protocol(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path / "a", game="ALE/SpaceInvaders-v5", agent="rainbow", sticky=0.25, score=7.0))
    assert (run.game, run.algorithm, run.family) == ("SpaceInvaders", "rainbow", "sticky")
    np.testing.assert_array_equal(run.eval_frames, [500_000, 1_000_000, 2_000_000])
    assert (run.score, run.last_frame) == (7.0, 2_000_000)


def test_a_full_evaluation_counts_before_a_light_one_of_the_same_frame(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    (folder / "eval_log.csv").write_text(EVAL_HEAD + "5,20,full,3,1,0,0\n5,20,light,9,1,0,0\n2,8,light,1,1,0,0\n")
    run = read_run(folder)
    np.testing.assert_array_equal(run.eval_frames, [8, 20])
    np.testing.assert_array_equal(run.eval_mean, [1, 3])


def test_a_line_that_is_still_being_written_is_left_out(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    with (folder / "eval_log.csv").open("a") as file:
        file.write("750000,3000000,lig")
    with (folder / "train_log.csv").open("a") as file:
        file.write("750000,3000")
    run = read_run(folder)
    assert len(run.eval_frames) == 3
    assert len(run.train_frames) == 200


def test_bad_folders_are_refused_by_name(tmp_path: Path) -> None:
    write_run(tmp_path / "pong_dqn")
    with pytest.raises(UsageError, match=r"pong_dqm.*'pong_dqn'"):
        read_run(tmp_path / "pong_dqm")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty.*neither"):
        read_run(tmp_path / "empty")
    (tmp_path / "empty" / "train_log.csv").write_text("step,env_frame,episode_return\n1,2,3\n")
    with pytest.raises(UsageError, match=r"'env_frames'.*'env_frame'"):
        read_run(tmp_path / "empty")
    with pytest.raises(UsageError, match="nothing to plot"):
        Plotter().plot_learning_curves([])
    with pytest.raises(UsageError, match="nothing to save"):
        Plotter().save_plots(tmp_path)


def test_protocols_and_games_never_share_a_panel(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / "a"),
        write_run(tmp_path / "b", sticky=0.25),
        write_run(tmp_path / "c", game="ALE/Breakout-v5"),
        write_run(tmp_path / "d", sticky=0.1),
        write_run(tmp_path / "e", game="CartPole-v1"),
    ]
    figure = Plotter().plot_learning_curves(runs)
    assert [axis.get_title() for axis in figure.axes] == [
        "Pong · no sticky actions",
        "Pong · sticky actions",
        "Breakout · no sticky actions",
        "Pong · repeat probability 0.1",
        "CartPole",
    ]
    published = [[label.split(": ", 1)[1] for label in labels(axis) if ": " in label] for axis in figure.axes]
    for panel, family in ((0, "no_sticky"), (1, "sticky")):
        known = {curve.label for curve in reference.curves("pong", family)}
        assert published[panel]
        assert set(published[panel]) <= known
    assert published[3] == published[4] == []


def test_given_references_of_another_protocol_are_left_out(tmp_path: Path) -> None:
    curves = reference.curves("pong", "sticky_train")[:2] + reference.curves("pong", "no_sticky_eval")[:1]
    figure = Plotter().plot_learning_curves([write_run(tmp_path / "a")], references=curves)
    assert [label for label in labels(figure.axes[0]) if ": " in label] == [f"a: {curves[2].label}"]
    bare = Plotter().plot_learning_curves([tmp_path / "a"], references=False)
    assert not [label for label in labels(bare.axes[0]) if ": " in label]


def test_the_frames_axis_is_in_millions_and_seeds_are_averaged(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, score=score) for name, score in (("a", 2.0), ("b", 6.0))]
    axis = Plotter().plot_learning_curves(runs, references=False).axes[0]
    (line,) = (line for line in axis.get_lines() if "2 seeds" in str(line.get_label()))
    np.testing.assert_allclose(line.get_xdata(), [0.5, 1.0, 2.0])
    np.testing.assert_allclose(line.get_ydata(), [1.0, 2.0, 4.0])
    assert "millions" in axis.get_xlabel()


def test_comparison_lists_own_runs_first_and_published_scores_with_their_budget(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "a"), write_run(tmp_path / "b"), write_run(tmp_path / "c", agent="ppo")]
    axis = Plotter().plot_algorithm_comparison(runs).axes[0]
    names = [tick.get_text() for tick in axis.get_yticklabels()]
    assert names[:2] == ["dqn · 2 seeds · 2M frames", "ppo · 1 seed · 2M frames"]
    assert len(names) == 8
    assert all("M frames" in name for name in names)


def test_sensitivity_draws_the_median_of_each_value(tmp_path: Path) -> None:
    settings = [("a", 0.001, 1.0), ("b", 0.001, 2.0), ("c", 0.001, 6.0), ("d", 0.1, 4.0)]
    runs = [write_run(tmp_path / name, lr=lr, score=score) for name, lr, score in settings]
    axis = Plotter().plot_hyperparameter_sensitivity(runs, "preset.lr").axes[0]
    (line,) = (line for line in axis.get_lines() if line.get_label() == "median")
    np.testing.assert_allclose(line.get_xydata(), [[0.001, 2.0], [0.1, 4.0]])
    assert axis.get_xscale() == "log"
    with pytest.raises(UsageError, match=r"preset\.lrr.*'lr'"):
        Plotter().plot_hyperparameter_sensitivity(runs, "preset.lrr")


def test_saved_files_are_png_and_svg_and_the_same_every_time(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    written = []
    for name in ("one", "two"):
        plotter = Plotter()
        plotter.plot_learning_curves([run])
        written.append(plotter.save_plots(tmp_path / name))
    assert [path.name for path in written[0]] == ["learning_curves.png", "learning_curves.svg"]
    assert written[0][0].read_bytes().startswith(b"\x89PNG")
    for first, second in zip(*written, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"retrograd\[plots\]"):
        Plotter().plot_learning_curves([write_run(tmp_path / "a")])
