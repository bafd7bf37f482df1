"""Plots: what is read from run folders, and that protocols never share a panel (REQ EXP-3, EXP-4)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from retrograd.core.errors import UsageError
from retrograd.experiments import reference
from retrograd.experiments.figures.style import DARK, LIGHT
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
    seed: int = 0,
) -> Path:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "config.yaml").write_text(
        f"seed: {seed}\nenv: {{name: x, game_id: {game}}}\nagent: {{name: {agent}}}\npreset: {{lr: {lr}}}\n"
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


def test_a_flickering_game_is_compared_with_nothing_published(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    config = folder / ".hydra" / "config.yaml"
    content = yaml.safe_load(config.read_text())
    content["env_protocol"]["flicker_probability"] = 0.5
    config.write_text(yaml.safe_dump(content))
    run = read_run(folder)
    assert run.family is None
    assert run.protocol_label == "no sticky actions, 50% of frames blank"


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
        file.write("750000,3000000,200,1")  # of 1520, say: enough columns to be taken for a row
    run = read_run(folder)
    assert len(run.eval_frames) == 3
    assert len(run.train_frames) == 200


def test_a_damaged_log_costs_its_damaged_lines(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    with (folder / "train_log.csv").open("ab") as file:
        file.write(b"1,2,3,\xff\xfe,5\n750000,3000000,200,7.0,100\n")
    run = read_run(folder)
    assert (len(run.train_frames), run.train_return[-1]) == (201, 7.0)


@pytest.mark.parametrize("config", [b"seed: [1\n", b"- a\n- b\n", b"seed: \xff\n"], ids=["torn", "a list", "no text"])
def test_a_damaged_config_is_refused_by_name(tmp_path: Path, config: bytes) -> None:
    folder = write_run(tmp_path / "a")
    (folder / ".hydra" / "config.yaml").write_bytes(config)
    with pytest.raises(UsageError, match=r"a/\.hydra/config\.yaml"):
        read_run(folder)


def test_a_config_with_a_value_in_place_of_a_group_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "a")
    (folder / ".hydra" / "config.yaml").write_text("env: pong\nagent: [dqn]\nenv_protocol: 3\n")
    run = read_run(folder)
    assert (run.game, run.algorithm, run.family) == ("a", "a", None)


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
        "CartPole-v1",
    ]
    published = [[label.split(": ", 1)[1] for label in labels(axis) if ": " in label] for axis in figure.axes]
    for panel, family in ((0, "no_sticky"), (1, "sticky")):
        known = {curve.label for curve in reference.curves("pong", family)}
        assert published[panel]
        assert set(published[panel]) <= known
    assert published[3] == published[4] == []


def test_a_short_run_fills_its_panel_where_nothing_is_published(tmp_path: Path) -> None:
    for game, millions in (("CartPole-v1", 0.525), ("ALE/Pong-v5", 2.0)):
        folder = write_run(tmp_path / game.replace("/", "_"), game=game)
        (folder / "eval_log.csv").write_text(EVAL_HEAD + "125000,500000,light,1,1,0,0\n")
        (folder / "train_log.csv").write_text(TRAIN_HEAD + "125000,500000,0,1,100\n")
        axis = Plotter().plot_learning_curves([folder]).axes[0]
        assert axis.get_xlim()[1] == pytest.approx(millions)


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


def test_three_seeds_get_their_interquartile_mean_and_an_interval(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(seed), score=2.0 * seed, seed=seed) for seed in range(1, 6)]
    axis = Plotter().plot_learning_curves(runs, references=False).axes[0]
    (line,) = (line for line in axis.get_lines() if "5 seeds, IQM, 95% interval" in str(line.get_label()))
    np.testing.assert_allclose(line.get_ydata(), [1.5, 3.0, 6.0])  # 2 4 6 8 10 without the lowest and the highest
    (band,) = axis.collections
    edge = band.get_paths()[0].vertices
    at_the_end = edge[edge[:, 0] == 2.0, 1]
    assert 2.0 < at_the_end.min() < 6.0 < at_the_end.max() < 10.0


def test_a_mapping_gives_groups_and_labels(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / name, lr=lr) for name, lr in (("a", 1), ("b", 1), ("c", 2))]
    axis = Plotter().plot_learning_curves({"ours": runs[:1], "theirs": runs[1:]}, references=False).axes[0]
    assert [label.split(" · ")[0] for label in labels(axis)] == ["ours", "theirs", "dotted, same color"]


def test_a_run_without_evaluations_shows_its_training_return_and_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    (run / "eval_log.csv").unlink()
    plotter = Plotter()
    assert "dqn · training return, mean of 50 episodes · 1 seed" in labels(plotter.plot_learning_curves([run]).axes[0])
    ticks = plotter.plot_algorithm_comparison([run]).axes[0].get_yticklabels()
    assert ticks[0].get_text() == "dqn · 1 seed · 1.99M frames · training return"


def test_a_seed_without_evaluations_is_no_dot_among_evaluations(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(seed), seed=seed) for seed in range(2)]
    (runs[1] / "eval_log.csv").unlink()
    axis = Plotter().plot_algorithm_comparison(runs, references=False).axes[0]
    assert axis.get_yticklabels()[0].get_text() == "dqn · 1 seed · 2M frames"


def test_areas_are_drawn_over_the_frames_all_runs_have_seen(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / agent, agent=agent) for agent in ("dqn", "ppo")]
    (runs[0] / "eval_log.csv").write_text(EVAL_HEAD + "1,500000,light,1.25,1,0,0\n2,1000000,light,2.5,1,0,0\n")
    axis = Plotter().plot_algorithm_comparison(runs, metric="auc").axes[0]
    assert [line.get_xdata()[0] for line in axis.get_lines() if line.get_marker() == "o"] == [1.875, 1.875]


def test_many_games_are_summed_up_by_protocol(tmp_path: Path) -> None:
    games = {"ALE/Pong-v5": 10.0, "ALE/Breakout-v5": 30.0}
    runs = [
        write_run(tmp_path / f"{agent}{seed}{game[4:8]}", game=game, agent=agent, score=score * factor, seed=seed)
        for game, score in games.items()
        for agent, factor in (("dqn", 0.5), ("ppo", 1.0))
        for seed in range(3)
    ]
    runs.append(write_run(tmp_path / "sticky", sticky=0.25))
    plotter = Plotter()
    profiles = plotter.plot_performance_profiles(runs)
    assert [axis.get_title() for axis in profiles.axes] == ["2 games · no sticky actions", "Pong · sticky actions"]
    assert labels(profiles.axes[0]) == ["dqn · 3 runs a game", "ppo · 3 runs a game"]
    improvement = plotter.plot_probability_of_improvement(runs)
    (axis,) = improvement.axes  # a single algorithm beats nobody
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["ppo  >  dqn"]
    assert [line.get_xdata()[0] for line in axis.get_lines() if len(line.get_xdata()) == 1] == [1.0]
    aggregates = plotter.plot_aggregate_scores(runs).axes
    assert [axis.get_title().split(" (")[0] for axis in aggregates[:4]] == ["median", "IQM", "mean", "optimality gap"]
    assert list(plotter.figures) == ["performance_profiles", "probability_of_improvement", "aggregate_scores"]
    with pytest.raises(UsageError, match="two configs"):
        Plotter().plot_probability_of_improvement(runs[-1:])
    with pytest.raises(UsageError, match="human score"):
        Plotter().plot_performance_profiles([write_run(tmp_path / "pole", game="CartPole-v1")])


def test_short_runs_are_drawn_in_thousands_of_frames(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", game="CartPole-v1")
    (run / "train_log.csv").unlink()
    (run / "eval_log.csv").write_text(EVAL_HEAD + "5,20000,light,3,1,0,0\n5,50000,light,9,1,0,0\n")
    axis = Plotter().plot_learning_curves([run]).axes[0]
    assert axis.get_xlabel() == "frames (thousands)"
    np.testing.assert_allclose(axis.get_lines()[0].get_xdata(), [20, 50])


def test_beyond_six_configs_the_weaker_ones_step_back(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(i), lr=float(i), score=float(i)) for i in range(11)]
    shown = labels(Plotter().plot_learning_curves(runs, references=False).axes[0])
    assert shown[0] == "5 more, with lower scores"
    assert [label.split(" · ")[1] for label in shown[1:7]] == [f"lr={i}" for i in range(10, 4, -1)]


def test_a_search_over_many_values_gets_medians_of_neighbors(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / str(i), lr=1e-4 * 1.5**i, score=float(i)) for i in range(16)]
    axis = Plotter().plot_hyperparameter_sensitivity(runs, "preset.lr").axes[0]
    (line,) = (line for line in axis.get_lines() if line.get_label() == "median of neighboring values")
    np.testing.assert_allclose(line.get_ydata(), [1.5, 5.5, 9.5, 13.5])


def test_saved_files_are_png_and_svg_in_both_themes_and_the_same_every_time(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a")
    written = []
    for name, themes in (("one", ("light", "dark")), ("two", ("dark",))):
        plotter = Plotter()
        plotter.plot_learning_curves([run])
        written.append(plotter.save_plots(tmp_path / name, themes=themes))
    stems = ("learning_curves", "learning_curves_dark")
    assert [path.name for path in written[0]] == [f"{stem}.{kind}" for stem in stems for kind in ("png", "svg")]
    assert written[0][0].read_bytes().startswith(b"\x89PNG")
    for first, second in zip(written[0][2:], written[1], strict=True):
        assert first.read_bytes() == second.read_bytes()
    light, dark = (path.read_text() for path in written[0][1::2])
    for theme, text, other in ((LIGHT, light, dark), (DARK, dark, light)):
        for color in (theme.background, theme.text, theme.colors[0]):
            assert color.lower() in text.lower()
            assert color.lower() not in other.lower()
    with pytest.raises(UsageError, match=r"'drak'.*'dark'"):
        plotter.save_plots(tmp_path, themes=["drak"])


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"retrograd\[plots\]"):
        Plotter().plot_learning_curves([write_run(tmp_path / "a")])
