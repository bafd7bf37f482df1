"""Published figures: spelling of games, normalization, protocols kept apart (REQ EXP-4)."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from retrograd.core.errors import UsageError
from retrograd.experiments import reference

FOLDER = Path(reference.__file__).parents[1] / "reference"


def rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    "title",
    ["ms_pacman", "MsPacman", "Ms. Pac-Man", "ALE/MsPacman-v5", "MsPacmanNoFrameskip-v4", "mspacman", "MsPacman-v4"],
)
def test_any_spelling_of_a_title_finds_the_game(title: str) -> None:
    assert reference.baseline(title) == (307.3, 6951.6)


def test_every_game_has_a_spelling_of_its_own() -> None:
    games = [row["game"] for row in rows("human_random_57.csv")]
    assert len(games) == 57
    assert len({reference.game_key(game) for game in games}) == 57


def test_unknown_games_have_no_baseline_and_no_figures() -> None:
    assert reference.baseline("CartPole-v1") is None
    assert reference.human_normalized(500.0, "CartPole-v1") is None
    assert reference.curves("CartPole-v1") == []
    assert reference.final_scores("CartPole-v1") == []


def test_a_game_of_another_family_is_not_the_atari_game_of_its_name() -> None:
    assert reference.baseline("MinAtar/Breakout-v1") is None
    assert not reference.is_known("MinAtar/Breakout-v1")
    assert reference.baseline("ale/Breakout-v5") == reference.baseline("breakout")


def test_human_normalized_score_is_zero_for_random_and_one_for_human() -> None:
    random, human = reference.baseline("pong") or (0.0, 0.0)
    assert (random, human) == (-20.7, 14.6)
    assert reference.human_normalized(random, "pong") == 0.0
    assert reference.human_normalized(human, "pong") == 1.0
    assert reference.human_normalized(0.0, "pong") == pytest.approx(20.7 / 35.3)


def test_family_follows_the_stickiness() -> None:
    assert reference.protocol_family(0.0) == "no_sticky"
    assert reference.protocol_family(0.25) == "sticky"
    assert reference.protocol_family(0.1) is None
    with pytest.raises(UsageError, match=r"1\.5.*0 to 1"):
        reference.protocol_family(1.5)


@pytest.mark.parametrize("family", ["sticky", "no_sticky"])
def test_a_family_never_holds_curves_of_another(family: str) -> None:
    chosen = reference.curves("pong", family)
    assert chosen
    assert {curve.family for curve in chosen} == {family}
    others = [curve for curve in reference.curves("pong") if curve.family != family]
    assert others
    assert not set(others) & set(chosen)


def test_one_protocol_can_be_chosen_and_a_wrong_one_gets_the_nearest_name() -> None:
    assert {curve.protocol for curve in reference.curves("pong", "sticky_eval")} == {"sticky_eval"}
    with pytest.raises(UsageError, match=r"'stiky_train'.*'sticky_train'"):
        reference.curves("pong", "stiky_train")


def test_known_points_of_a_curve() -> None:
    (curve,) = (c for c in reference.curves("Beam Rider") if (c.algorithm, c.source) == ("DQN", "dopamine_tf"))
    assert curve.frames[:2] == (1_000_000, 2_000_000)
    assert curve.mean_return[:2] == (361.5, 331.4)
    assert curve.std[0] == 4.28
    assert curve.label == "DQN · Dopamine TF · training return · 5 seeds"


def test_a_game_outside_the_ten_has_sparse_curves() -> None:
    (curve,) = (c for c in reference.curves("Alien") if (c.algorithm, c.source) == ("DQN", "dopamine_tf"))
    assert curve.frames == tuple(million * 1_000_000 for million in (1, 2, 5, 10, 20, 50, 100, 200))


def test_points_of_a_curve_are_ordered_and_never_repeated() -> None:
    games = {row["game"] for name in ("curves.csv", "checkpoints.csv") for row in rows(name)}
    curves = [curve for game in games for curve in reference.curves(game)]
    assert len(curves) > 300
    for curve in curves:
        assert all(before < after for before, after in zip(curve.frames, curve.frames[1:], strict=False)), curve.label


def test_final_scores_are_best_first_and_of_one_family() -> None:
    scores = reference.final_scores("breakout", "no_sticky")
    assert {score.family for score in scores} == {"no_sticky"}
    assert [score.score for score in scores] == sorted((score.score for score in scores), reverse=True)


@pytest.mark.parametrize(
    ("game", "algorithm", "source", "score"),
    [
        ("Jamesbond", "Double DQN", "wang2016", 1358.0),  # one source has this row shifted by a column
        ("Jamesbond", "DQN", "wang2016", 768.5),
        ("Jamesbond", "C51", "bellemare2017", 1909.0),  # one source has 81909
        ("Tennis", "C51", "bellemare2017", 23.1),  # one source has 32.1
    ],
)
def test_known_faults_of_the_sources_are_not_passed_on(game: str, algorithm: str, source: str, score: float) -> None:
    found = [s.score for s in reference.final_scores(game) if (s.algorithm, s.source) == (algorithm, source)]
    assert found == [score]


def test_budgets_are_in_frames() -> None:
    budgets = {(s.algorithm, s.source): s.frames for s in reference.final_scores("pong")}
    assert budgets["DQN", "mnih2015"] == 200_000_000
    assert budgets["PPO", "schulman2017"] == 40_000_000


def test_every_row_has_a_known_protocol_and_a_source_with_a_license() -> None:
    licenses = {row["source"]: row["license"] for row in rows("sources.csv")}
    for name in ("curves.csv", "checkpoints.csv", "final_scores.csv"):
        for row in rows(name):
            assert row["protocol"] in reference.PROTOCOLS
            assert licenses[row["source"]] in {"MIT", "Apache-2.0"}


TEN_GAMES = (
    "beam_rider", "breakout", "enduro", "freeway", "montezuma_revenge",
    "ms_pacman", "pong", "qbert", "seaquest", "space_invaders",
)  # fmt: skip


@pytest.mark.parametrize("game", TEN_GAMES)
def test_the_games_of_the_zoo_can_be_compared_under_both_families(game: str) -> None:
    """REQ EXP-4: baselines, dense curves and final scores of the best known agents, sticky and not."""
    assert reference.baseline(game) is not None
    for family, algorithms in {"sticky": {"DQN", "Rainbow", "PPO", "IQN"}, "no_sticky": {"DQN"}}.items():
        curves = reference.curves(game, family)
        assert {curve.algorithm for curve in curves} >= algorithms
        assert min(curve.frames[0] for curve in curves) <= 1_000_000
        assert max(len(curve.frames) for curve in curves) >= 20
    finals = {family: {s.algorithm for s in reference.final_scores(game, family)} for family in ("sticky", "no_sticky")}
    assert finals["sticky"] >= {"DQN", "Rainbow", "PPO"}
    assert finals["no_sticky"] >= {"DQN", "Double DQN", "Rainbow", "C51", "QR-DQN", "IQN", "PPO", "A2C"}
    for figure in (*reference.curves(game), *reference.final_scores(game)):
        source = reference.source(figure.source)
        assert source["label"]
        assert source["origin"]


def test_every_listed_source_is_used() -> None:
    used = {row["source"] for name in ("curves.csv", "checkpoints.csv", "final_scores.csv") for row in rows(name)}
    assert used == {row["source"] for row in rows("sources.csv")}


def test_titles_are_the_ales() -> None:
    assert reference.title("ms. pac-man") == "MsPacman"
    assert reference.world_record("pong") == 21.0
    assert reference.world_record("CartPole-v1") is None
    assert len(reference.games()) == len(set(reference.games())) >= 57


def test_the_shipped_part_stays_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 600_000
