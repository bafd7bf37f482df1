"""Published curves and scores laid under runs of the same game and protocol family."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from retrograd.experiments import reference
from retrograd.experiments.figures.style import DASHES, Theme, count_frames
from retrograd.experiments.reference import Curve, FinalScore
from retrograd.experiments.runs import Panel

SHOWN_FIRST = ("DQN", "Double DQN", "Rainbow", "PPO", "C51", "QR-DQN")
LETTERS = "abcdefghijklmnopqrstuvwxyz"

Published = TypeVar("Published", Curve, FinalScore)


def curves_for(panel: Panel, given: bool | Sequence[Curve], limit: int) -> list[Curve]:
    """The curves to draw; none of another game or family, even where they are given by hand."""
    if not given or panel.family is None:
        return []
    if given is True:
        return _choose(reference.curves(panel.game, panel.family), panel, limit)
    return _of_the_same(given, panel)


def scores_for(panel: Panel, given: bool | Sequence[FinalScore], limit: int) -> list[FinalScore]:
    """The final scores to draw, by the same rule."""
    if not given or panel.family is None:
        return []
    if given is True:
        return _choose(reference.final_scores(panel.game, panel.family), panel, limit)
    return _of_the_same(given, panel)


def draw_curves(axis: Any, curves: Sequence[Curve], limit_frames: float, unit: int, theme: Theme) -> None:
    """Dashed lines in gray, with letters that tell them apart in print."""
    ends = []
    for index, curve in enumerate(curves):
        frames = np.array(curve.frames, dtype=np.float64)
        if frames[0] > limit_frames:
            continue
        end = min(limit_frames, frames[-1])
        seen = np.append(frames[frames < end], end)
        values = np.interp(seen, frames, curve.mean_return)
        letter = LETTERS[index % len(LETTERS)]
        style = {"color": theme.muted, "linewidth": 1.0, "dashes": DASHES[index % len(DASHES)], "zorder": 1.5}
        axis.plot(seen / unit, values, label=f"{letter}: {curve.label}", **style)
        ends.append((float(values[-1]), end / unit, letter))
    # a letter that would cover its neighbor moves aside
    low, high = axis.get_ylim()
    previous, shift = -math.inf, 0
    for value, frame, letter in sorted(ends):
        shift = shift + 1 if value - previous < 0.045 * (high - low) else 0
        place = (4 + 9 * shift, 0)
        options = {"textcoords": "offset points", "fontsize": 8, "color": theme.muted, "va": "center"}
        axis.annotate(letter, (frame, value), place, annotation_clip=False, **options)
        previous = value


def draw_baselines(axis: Any, game: str, theme: Theme) -> None:
    """Lines at the random and the human score, where they do not flatten the curves."""
    known = reference.baseline(game)
    low, high = axis.get_ylim()
    for name, value, side in zip(("random", "human"), known or (), ("top", "bottom"), strict=False):
        if low - 0.25 * (high - low) <= value <= high + 0.25 * (high - low):
            axis.axhline(value, color=theme.faint, linewidth=0.8, zorder=1)
            # at the left few curves are high, and nearly none is below a random player
            axis.text(0.0, value, f" {name}", fontsize=7, color=theme.muted, va=side, ha="left")
    bottom, top = axis.get_ylim()
    axis.set_ylim(bottom - 0.03 * (top - bottom), top)


def final_label(score: FinalScore) -> str:
    measured = reference.PROTOCOLS[score.protocol][1]
    budget = f" · {count_frames(score.frames)}" if score.frames else ""
    return f"{score.algorithm} · {reference.source_label(score.source)} · {measured}{budget}"


def _of_the_same(given: Iterable[Published], panel: Panel) -> list[Published]:
    game = reference.game_key(panel.game)
    return [figure for figure in given if figure.family == panel.family and reference.game_key(figure.game) == game]


def _choose(figures: Iterable[Published], panel: Panel, limit: int) -> list[Published]:
    """Two of each of the runs' own algorithms, one of each well-known one, then whatever there is."""
    own = {reference.game_key(run.algorithm) for run in panel.runs}
    times: Counter[str] = Counter()

    def rank(figure: Published) -> tuple[int, bool, bool]:
        known = SHOWN_FIRST.index(figure.algorithm) if figure.algorithm in SHOWN_FIRST else len(SHOWN_FIRST)
        is_own = reference.game_key(figure.algorithm) in own
        return -1 if is_own else known, figure.source != "dopamine_tf", figure.protocol.endswith("_train")

    later: list[Published] = []
    chosen: list[Published] = []
    for figure in sorted(figures, key=rank):
        times[figure.algorithm] += 1
        enough = times[figure.algorithm] > (2 if reference.game_key(figure.algorithm) in own else 1)
        (later if enough else chosen).append(figure)
    return (chosen + later)[:limit]
