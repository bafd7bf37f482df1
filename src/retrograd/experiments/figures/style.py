"""Colors, markers and the empty figure, in a light theme for print and a dark one for screens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from retrograd.core.errors import UsageError, missing_extra, suggest

MILLION = 1_000_000
MARKERS = ("o", "s", "^", "D", "v", "P", "X")  # one more than colors, so that a second round of colors differs
DASHES: tuple[Any, ...] = ((6, 2), (2, 1.5), (7, 2, 1.5, 2), (4, 1.5, 1, 1.5, 1, 1.5), (1, 1.2), (10, 2))


@dataclass(frozen=True)
class Theme:
    name: str
    background: str
    text: str
    muted: str  # published figures and what stands beside the runs
    faint: str  # baselines
    grid: str
    colors: tuple[str, ...]

    def color(self, index: int) -> str:
        return self.colors[index % len(self.colors)]

    def marker(self, index: int) -> str:
        return MARKERS[index % len(MARKERS)]


# Okabe and Ito's palette, told apart with any color vision; the dark theme has the same hues, lighter
LIGHT = Theme(
    name="light",
    background="#ffffff",
    text="#1a1a1a",
    muted="#6b6b6b",
    faint="#b5b5b5",
    grid="#e6e6e6",
    colors=("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
)
DARK = Theme(
    name="dark",
    background="#0d1117",
    text="#e6edf3",
    muted="#9aa4af",
    faint="#5b6570",
    grid="#232a33",
    colors=("#4FA8E0", "#FF8A4C", "#2CC79B", "#E5A3CC", "#F2C14E", "#9CD3F5"),
)
THEMES = {theme.name: theme for theme in (LIGHT, DARK)}


def find_theme(name: str) -> Theme:
    if name not in THEMES:
        raise UsageError(f"Unknown theme {name!r}.{suggest(name, THEMES)} Known are {', '.join(THEMES)}.")
    return THEMES[name]


@contextmanager
def themed(theme: Theme) -> Iterator[None]:
    """Everything drawn or saved inside has the theme's colors, and the same bytes every time."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise missing_extra("Plots", "plots") from error
    words = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
    pages = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    colors = dict.fromkeys(words, theme.text) | dict.fromkeys(pages, theme.background)
    fonts = {"axes.titlesize": 11, "axes.labelsize": 9.5, "xtick.labelsize": 9, "ytick.labelsize": 9}
    settings: dict[Any, Any] = {"svg.hashsalt": "retrograd", "grid.color": theme.grid, **colors, **fonts}
    with mpl.rc_context(settings):
        yield


def new_figure(theme: Theme, panels: int, height: float, width: float = 6.4) -> tuple[Any, list[Any]]:
    """A figure with so many axes, two in a row."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("Plots", "plots") from error
    columns = min(panels, 2)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = [figure.add_subplot(rows, columns, index + 1) for index in range(panels)]
    for axis in axes:
        axis.grid(color=theme.grid, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(colors=theme.text)  # ticks are made late, outside of the theme
    return figure, axes


def frame_unit(last_frame: float) -> tuple[int, str]:
    """What frames are divided by on an axis, and its label."""
    if last_frame >= 0.5 * MILLION:
        return MILLION, "emulator frames (millions)"
    return (1000, "frames (thousands)") if last_frame >= 2000 else (1, "frames")


def count_frames(frames: float) -> str:
    """``2M frames``, ``50k frames``, ``800 frames``."""
    unit, _ = frame_unit(frames)
    letter = {MILLION: "M", 1000: "k"}.get(unit, "")
    return f"{frames / unit:.3g}{letter} frames"


def add_legend(axis: Any, **options: Any) -> None:
    """A legend below the axis, where it covers no curve: a fixed way down, however high the axis is."""
    from matplotlib.transforms import ScaledTranslation

    down = ScaledTranslation(0.0, -0.5, axis.figure.dpi_scale_trans)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "bbox_transform": axis.transAxes + down}
    axis.legend(fontsize=8, frameon=False, handlelength=3.2, **place, **options)
