"""An explained game as moving pictures: the game with a saliency map over it, actions beside it, the value below.

Drawn with OpenCV: a game has hundreds of pictures, and a plotting library needs a tenth of a second for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from retrograd.core.types import Array
from retrograd.experiments.explanation import Explanation
from retrograd.experiments.figures.overlay import lay_over, reference_size
from retrograd.experiments.figures.style import DARK
from retrograd.experiments.q_values import Trace
from retrograd.training.video import encode

PICTURE_HEIGHT, PICTURE_WIDTH, PANEL_WIDTH, STRIP_HEIGHT, MARGIN = 420, 600, 360, 130, 14
HISTOGRAM_BINS = 40
FONT = cv2.FONT_HERSHEY_SIMPLEX


@dataclass(frozen=True, slots=True)
class Box:
    left: int
    top: int
    width: int
    height: int


def write_film(explanation: Explanation, path: Path, *, title: str) -> int:
    """The game as MP4; how many pictures it has. The map over them is the first kind there is."""
    return encode(path, Film(explanation, title).pictures(), explanation.fps)


class Film:
    """Makes one picture after the other; what does not move is drawn once."""

    def __init__(self, explanation: Explanation, title: str) -> None:
        self._explanation, self._trace = explanation, explanation.trace
        self._kind = next(iter(explanation.largest), None)
        with np.load(explanation.folder / "frames.npz", allow_pickle=False) as frames:
            height, width = frames["frame_000000"].shape[:2]
        scale = min(PICTURE_HEIGHT / height, PICTURE_WIDTH / width)
        scale = max(int(scale), 1) if scale >= 1 else scale  # whole pixels where there are few of them
        self._screen = Box(MARGIN, MARGIN, max(int(width * scale), 1), max(int(height * scale), 1))
        left = self._screen.left + self._screen.width + 2 * MARGIN
        body = max(self._screen.height, 340)
        strip = Box(MARGIN + 46, body + 3 * MARGIN, left + PANEL_WIDTH - 2 * MARGIN - 46, STRIP_HEIGHT)
        spread = self._trace.mass is not None
        bars = body - 46 - 24 - (120 if spread else 0)
        self._bars = Box(left, MARGIN + 46, PANEL_WIDTH - MARGIN, bars)
        self._histogram = Box(left, MARGIN + 46 + bars + 26, PANEL_WIDTH - MARGIN, 70) if spread else None
        self._strip = strip
        rows, columns = strip.top + strip.height + 2 * MARGIN, left + PANEL_WIDTH
        self._ground = np.full((rows + rows % 2, columns + columns % 2, 3), rgb(DARK.background), np.uint8)
        write(self._ground, title, left, MARGIN + 12, rgb(DARK.text), 0.48)
        if self._kind is not None:
            words = f"over the picture: {self._kind}"
            write(self._ground, words, left, MARGIN + body - 4, rgb(DARK.muted), 0.4)
        self._curve = draw_curve(self._ground, strip, self._trace.value)
        self._bins, self._bounds = _return_bins(self._trace)

    def pictures(self) -> Iterator[Array]:
        folder, steps, full = self._explanation.folder, self._explanation.map_steps, 1.0
        kind = self._kind
        if kind is not None:
            full = reference_size(np.asarray(self._explanation.largest[kind]))
        shares: Array | None = None
        number = 0
        with (
            np.load(folder / "frames.npz", allow_pickle=False) as frames,
            np.load(folder / "saliency.npz", allow_pickle=False) as maps,
        ):
            for time in range(len(self._trace.value)):
                if kind is not None and number < len(steps) and steps[number] == time:
                    size = self._explanation.largest[kind][number] / full
                    shares = maps[f"{kind}_{time:06d}"].astype(np.float32) / 255 * min(size, 1.0)
                    number += 1
                yield self._picture(time, frames[f"frame_{time:06d}"], shares)

    def _picture(self, time: int, frame: Array, shares: Array | None) -> Array:
        canvas = self._ground.copy()
        screen = self._screen
        large = cv2.resize(frame, (screen.width, screen.height), interpolation=_interpolation(frame, screen))
        canvas[screen.top : screen.top + screen.height, screen.left : screen.left + screen.width] = lay_over(
            large, shares
        )
        trace = self._trace
        facts = f"step {time}   value {trace.value[time]:.3g}   reward {trace.reward[time]:.3g}"
        write(canvas, facts, self._bars.left, MARGIN + 32, rgb(DARK.muted), 0.42)
        self._draw_actions(canvas, time)
        if self._histogram is not None:
            self._draw_histogram(canvas, self._histogram, time)
        x, y = self._curve[time]
        cv2.line(canvas, (x, self._strip.top), (x, self._strip.top + self._strip.height), rgb(DARK.faint), 1)
        cv2.circle(canvas, (x, y), 5, rgb(DARK.color(1)), -1, cv2.LINE_AA)
        return canvas

    def _draw_actions(self, canvas: Array, time: int) -> None:
        trace = self._trace
        if trace.q is not None:
            lowest = trace.q[time].min()
            spread = max(float((trace.q.max(axis=1) - trace.q.min(axis=1)).max()), 1e-9)
            heights, words = (trace.q[time] - lowest) / spread, [f"{q:.3g}" for q in trace.q[time]]
        elif trace.probability is not None:
            heights, words = trace.probability[time], [f"{100 * share:.0f} %" for share in trace.probability[time]]
        else:
            text = "  ".join(f"{number:+.2f}" for number in np.ravel(trace.action[time])[:6])
            write(canvas, f"action {text}", self._bars.left, self._bars.top + 20, rgb(DARK.text), 0.45)
            return
        taken = int(trace.action[time])
        row = min(self._bars.height / len(words), 34)
        for number, (name, height, word) in enumerate(zip(trace.action_names, heights, words, strict=True)):
            top = int(self._bars.top + number * row)
            color = rgb(DARK.color(1) if number == taken else DARK.color(0))
            ink = rgb(DARK.text if number == taken else DARK.muted)
            base = top + int(row / 2) + 4
            write(canvas, shorten(name, 14), self._bars.left, base, ink, 0.4)
            reach = int((self._bars.width - 170) * float(np.clip(height, 0, 1)))
            left = self._bars.left + 115
            cv2.rectangle(canvas, (left, top + 4), (left + max(reach, 1), top + int(row) - 3), color, -1)
            write(canvas, word, left + reach + 6, base, ink, 0.4)

    def _draw_histogram(self, canvas: Array, box: Box, time: int) -> None:
        assert self._trace.places is not None
        assert self._trace.mass is not None
        taken, (low, high) = int(self._trace.action[time]), self._bounds
        places, mass = self._trace.places[time, taken], self._trace.mass[time, taken]
        shares, _ = np.histogram(np.clip(places, low, high), self._bins, (low, high), weights=mass)
        write(canvas, "return of the action taken", box.left, box.top - 6, rgb(DARK.muted), 0.4)
        wide = box.width / self._bins
        for number, share in enumerate(shares / max(float(shares.max()), 1e-9)):
            left, foot = int(box.left + number * wide), box.top + box.height - 16
            tall = int((box.height - 18) * share)
            if tall:
                cv2.rectangle(canvas, (left, foot - tall), (int(left + wide) - 2, foot), rgb(DARK.color(1)), -1)
        write(canvas, f"{low:.3g}", box.left, box.top + box.height, rgb(DARK.muted), 0.38)
        write(canvas, f"{high:.3g}", box.left + box.width - 40, box.top + box.height, rgb(DARK.muted), 0.38)


def draw_curve(canvas: Array, box: Box, values: Array) -> Array:
    """The values over time with their range beside them; where each point is [T, 2]."""
    low, high = float(values.min()), float(values.max())
    margin = max((high - low) * 0.05, 1e-6)
    shares = (values - low + margin) / (high - low + 2 * margin)
    x = box.left + np.linspace(0, box.width - 8, len(values))
    points = np.stack([x, box.top + box.height - shares * box.height], axis=1).astype(np.int32)
    for value, place in ((high, box.top + 10), (low, box.top + box.height)):
        write(canvas, f"{value:.3g}", MARGIN, place, rgb(DARK.muted), 0.38)
    write(canvas, "value", MARGIN, box.top + box.height // 2 + 4, rgb(DARK.muted), 0.4)
    cv2.line(canvas, (box.left, box.top + box.height), (box.left + box.width, box.top + box.height), rgb(DARK.grid), 1)
    cv2.polylines(canvas, [points.reshape(-1, 1, 2)], False, rgb(DARK.color(0)), 1, cv2.LINE_AA)
    return points


def write(canvas: Array, words: str, left: int, base: int, color: tuple[int, int, int], size: float) -> None:
    # these fonts know ASCII alone
    plain = words.encode("ascii", "replace").decode()
    cv2.putText(canvas, plain, (left, base), FONT, size, color, 1, cv2.LINE_AA)


def rgb(name: str) -> tuple[int, int, int]:
    """``#0072B2`` → (0, 114, 178)."""
    red, green, blue = (int(name[at : at + 2], 16) for at in (1, 3, 5))
    return red, green, blue


def shorten(name: str, length: int) -> str:
    return name if len(name) <= length else name[: length - 1] + "."


def _interpolation(frame: Array, screen: Box) -> int:
    return cv2.INTER_NEAREST if screen.height >= frame.shape[0] else cv2.INTER_AREA


def _return_bins(trace: Trace) -> tuple[int, tuple[float, float]]:
    """Bins over the returns that hold nearly all mass of the game, so that the axis stands still; one for each atom."""
    if trace.places is None or trace.mass is None:
        return HISTOGRAM_BINS, (0.0, 1.0)
    held = trace.places[trace.mass > 0.01] if (trace.mass > 0.01).any() else trace.places.ravel()
    low, high = float(held.min()), float(held.max())
    support = trace.places[0, 0]
    if (trace.places == support).all() and len(support) > 1:
        half = float(support[1] - support[0]) / 2  # an atom stands in the middle of its bin
        return int(((support >= low) & (support <= high)).sum()), (low - half, high + half)
    return HISTOGRAM_BINS, (low, max(high, low + 1e-6))
