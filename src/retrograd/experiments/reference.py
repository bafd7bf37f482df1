"""Published curves and scores, kept apart by protocol.

The files and the meaning of each protocol are explained in ``reference/README.md``. A *family* says which
emulator a figure was made on (sticky actions or not); a *protocol* also says how the return was measured.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from retrograd.core import statistics
from retrograd.core.errors import UsageError, suggest

PROTOCOLS = {  # protocol -> (family, how the return was measured)
    "sticky_train": ("sticky", "training return"),
    "sticky_eval": ("sticky", "evaluation"),
    "no_sticky_train": ("no_sticky", "training return"),
    "no_sticky_eval": ("no_sticky", "evaluation"),
    "noop": ("no_sticky", "evaluation, no-op starts"),
    "noop_best_checkpoint": ("no_sticky", "best checkpoint"),
    "human_starts": ("human_starts", "human starts"),
}
FAMILIES = {"sticky": "sticky actions", "no_sticky": "no sticky actions", "human_starts": "human starts"}
BASELINE_SOURCE = "google-deepmind/dqn_zoo @45061f4 (Apache-2.0); records: danijar/dreamerv2 @07d906e (MIT)"
STICKY_PROBABILITY = 0.25  # the only value other than 0 that anybody has published curves for


@dataclass(frozen=True, slots=True)
class Curve:
    """Mean return against emulator frames, as one source reports it."""

    algorithm: str
    game: str
    protocol: str
    source: str
    frames: tuple[int, ...]
    mean_return: tuple[float, ...]
    std: tuple[float | None, ...]
    n_seeds: int | None  # the fewest behind any point; None where the source does not say

    @property
    def family(self) -> str:
        return PROTOCOLS[self.protocol][0]

    @property
    def label(self) -> str:
        """``DQN · Dopamine TF · training return · 5 seeds``."""
        parts = [self.algorithm, source_label(self.source), PROTOCOLS[self.protocol][1]]
        if self.n_seeds:
            parts.append(f"{self.n_seeds} seed{'s' * (self.n_seeds > 1)}")
        return " · ".join(parts)


@dataclass(frozen=True, slots=True)
class FinalScore:
    """One published score at the end of training."""

    algorithm: str
    game: str
    score: float
    std: float | None
    frames: int | None
    protocol: str
    source: str

    @property
    def family(self) -> str:
        return PROTOCOLS[self.protocol][0]


def game_key(title: str) -> str:
    """One spelling for ``Q*bert``, ``qbert``, ``ALE/Qbert-v5``, ``QbertNoFrameskip-v4``, ``ms_pacman``.

    A game of another family keeps its family's name: MinAtar/Breakout is not Breakout.
    """
    family, _, name = title.rpartition("/")
    name = name if family.lower() in ("", "ale") else title
    stem, _, version = name.rpartition("-v")
    if stem and version.isdigit():
        name = stem
    key = "".join(character for character in name.lower() if character.isalnum())
    for suffix in ("noframeskip", "deterministic", "ram"):
        key = key.removesuffix(suffix) or key
    return key


def baseline(game: str) -> tuple[float, float] | None:
    """(random, human) scores of the game; None for games nobody has measured."""
    return _baselines().get(game_key(game))


def human_normalized(score: float, game: str) -> float | None:
    """0 for a random player, 1 for a human; None where either is unknown."""
    known = baseline(game)
    return None if known is None else float(statistics.human_normalized(score, *known))


def world_record(game: str) -> float | None:
    """The best score of a human, where one is listed."""
    records = {game_key(row["game"]): _number(row["human_world_record"]) for row in _rows("human_random_57.csv")}
    return records.get(game_key(game))


def games() -> list[str]:
    """Every game with a curve, a score or a baseline, as the ALE spells it."""
    return sorted(_titles().values())


def title(game: str) -> str:
    """The ALE's spelling of a known game."""
    return _titles()[game_key(game)]


def is_known(game: str) -> bool:
    """Whether anything is published about the game: true of Atari, false of CartPole."""
    return game_key(game) in _titles()


def curves(game: str, protocol: str | None = None) -> list[Curve]:
    """Published curves of a game, of one protocol or of one family where either is named."""
    wanted = _protocols(protocol)
    return [curve for curve in _curves().get(game_key(game), ()) if curve.protocol in wanted]


def final_scores(game: str, protocol: str | None = None) -> list[FinalScore]:
    """Published final scores of a game, best first."""
    wanted = _protocols(protocol)
    return [score for score in _final_scores().get(game_key(game), ()) if score.protocol in wanted]


def protocol_family(repeat_action_probability: float) -> str | None:
    """The family a run may be compared with; None where nothing published has this stickiness."""
    if not 0.0 <= repeat_action_probability <= 1.0:
        raise UsageError(f"repeat_action_probability is {repeat_action_probability}; it is a probability, 0 to 1.")
    return {0.0: "no_sticky", STICKY_PROBABILITY: "sticky"}.get(repeat_action_probability)


def source_label(source: str) -> str:
    """The name people know a source by."""
    return _sources()[source]["label"] if source in _sources() else source


def source(name: str) -> dict[str, str]:
    """Name, label, origin and license of a source."""
    return dict(_sources()[name])


def _protocols(name: str | None) -> set[str]:
    if name is None:
        return set(PROTOCOLS)
    if name in PROTOCOLS:
        return {name}
    if name in FAMILIES:
        return {protocol for protocol, (family, _) in PROTOCOLS.items() if family == name}
    allowed = [*FAMILIES, *PROTOCOLS]
    raise UsageError(f"Unknown protocol {name!r}.{suggest(name, allowed)} Known are {', '.join(allowed)}.")


def _rows(name: str) -> Iterator[dict[str, str]]:
    with (files("retrograd") / "reference" / name).open(encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _number(text: str) -> float | None:
    return float(text) if text else None


@cache
def _baselines() -> dict[str, tuple[float, float]]:
    rows = _rows("human_random_57.csv")
    return {game_key(row["game"]): (float(row["random"]), float(row["human"])) for row in rows}


@cache
def _sources() -> dict[str, dict[str, str]]:
    return {row["source"]: row for row in _rows("sources.csv")}


@cache
def _titles() -> dict[str, str]:
    spelled = [row["game"] for row in _rows("human_random_57.csv")]
    spelled += [curves[0].game for curves in _curves().values()]
    spelled += [scores[0].game for scores in _final_scores().values()]
    return {game_key(game): game for game in spelled}


@cache
def _curves() -> dict[str, list[Curve]]:
    grouped: dict[tuple[str, str, str, str], list[dict[str, str]]] = {}
    for name in ("curves.csv", "checkpoints.csv"):
        for row in _rows(name):
            identity = row["game"], row["algorithm"], row["protocol"], row["source"]
            grouped.setdefault(identity, []).append(row)
    by_game: dict[str, list[Curve]] = {}
    for (game, algorithm, protocol, source), rows in grouped.items():
        rows.sort(key=lambda row: int(row["frames"]))
        seeds = [int(row["n_seeds"]) for row in rows if row["n_seeds"]]
        curve = Curve(
            algorithm=algorithm,
            game=game,
            protocol=protocol,
            source=source,
            frames=tuple(int(row["frames"]) for row in rows),
            mean_return=tuple(float(row["mean_return"]) for row in rows),
            std=tuple(_number(row["std"]) for row in rows),
            n_seeds=min(seeds, default=None),
        )
        by_game.setdefault(game_key(game), []).append(curve)
    return by_game


@cache
def _final_scores() -> dict[str, list[FinalScore]]:
    by_game: dict[str, list[FinalScore]] = {}
    for row in _rows("final_scores.csv"):
        score = FinalScore(
            algorithm=row["algorithm"],
            game=row["game"],
            score=float(row["score"]),
            std=_number(row["std"]),
            frames=int(row["frames"]) if row["frames"] else None,
            protocol=row["protocol"],
            source=row["source"],
        )
        by_game.setdefault(game_key(row["game"]), []).append(score)
    for scores in by_game.values():
        scores.sort(key=lambda score: -score.score)
    return by_game
