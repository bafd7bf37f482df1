"""What is published about a game, as plain lists: for the command line and for scripts."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.errors import UsageError, suggest
from retrograd.experiments import reference
from retrograd.experiments.reference import Curve, FinalScore


def list_games() -> list[dict[str, Any]]:
    """Every game with anything published, and how much."""
    return [
        {
            "game": game,
            "curves": len(reference.curves(game)),
            "final_scores": len(reference.final_scores(game)),
            "baseline": reference.baseline(game) is not None,
        }
        for game in reference.games()
    ]


def about(game: str, protocol: str | None = None) -> dict[str, Any]:
    """Curves, final scores, baselines and sources of one game, of one protocol or family where it is named."""
    if not reference.is_known(game):
        games = reference.games()
        raise UsageError(
            f"Nothing is published here about {game!r}.{suggest(reference.game_key(game), games)} "
            f"{len(games)} games are known; `retrograd reference` lists them."
        )
    curves, scores = reference.curves(game, protocol), reference.final_scores(game, protocol)
    sources = {curve.source for curve in curves} | {score.source for score in scores}
    baseline = reference.baseline(game)
    protocols = {curve.protocol for curve in curves} | {score.protocol for score in scores}
    return {
        "game": reference.title(game),
        "protocol": protocol,
        "baseline": None if baseline is None else {"random": baseline[0], "human": baseline[1]},
        "human_world_record": reference.world_record(game),
        "protocols": {
            name: {"family": family, "measured": measured}
            for name, (family, measured) in reference.PROTOCOLS.items()
            if name in protocols
        },
        "curves": [describe_curve(curve) | _points(curve) for curve in curves],
        "final_scores": [describe_score(score) for score in scores],
        "sources": [reference.source(name) for name in sorted(sources)],
        "baseline_source": reference.BASELINE_SOURCE if baseline is not None else None,
    }


def describe_curve(curve: Curve, frames: float | None = None) -> dict[str, Any]:
    """A published curve in words, with its return at a frame where it has one."""
    words: dict[str, Any] = {
        "algorithm": curve.algorithm,
        "source": curve.source,
        "source_label": reference.source_label(curve.source),
        "protocol": curve.protocol,
        "measured": reference.PROTOCOLS[curve.protocol][1],
        "seeds": curve.n_seeds,
        "first_frame": curve.frames[0],
        "last_frame": curve.frames[-1],
    }
    if frames is not None:
        inside = curve.frames[0] <= frames <= curve.frames[-1]
        words["mean_return"] = float(np.interp(frames, curve.frames, curve.mean_return)) if inside else None
    return words


def describe_score(score: FinalScore) -> dict[str, Any]:
    return {
        "algorithm": score.algorithm,
        "source": score.source,
        "source_label": reference.source_label(score.source),
        "protocol": score.protocol,
        "measured": reference.PROTOCOLS[score.protocol][1],
        "score": score.score,
        "std": score.std,
        "env_frames": score.frames,
        "human_normalized": reference.human_normalized(score.score, score.game),
    }


def _points(curve: Curve) -> dict[str, Any]:
    return {"frames": list(curve.frames), "mean_return": list(curve.mean_return), "std": list(curve.std)}
