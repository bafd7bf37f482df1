"""Where an agent's play takes it: a heatmap of the states that were visited.

Of pictures and boards, the share of steps at which something was there that is not background, pixel by pixel; the
background is what is there most of the time (the median). Of vectors, a histogram over two numbers of the observation,
or over the first two principal components where there are more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.types import Array, ArraySpec, EnvSpec, Obs

BINS = 40
NOTICEABLE = 12  # of 255 shades of gray: less is flicker and rounding


@dataclass(frozen=True, slots=True)
class Heatmap:
    """``share`` adds up to 1 over a plane; on a screen each pixel has its own share of the steps."""

    kind: str  # screen, board or plane
    share: Array  # [Y, X] float32
    steps: int
    x_edges: Array  # [X + 1] what the columns stand for
    y_edges: Array  # [Y + 1]
    x_label: str
    y_label: str
    background: Array | None = None  # [Y, X] uint8; None on a plane


class Visits:
    """Collects observations of one row, in whatever form they come."""

    def __init__(self, spec: EnvSpec) -> None:
        self._spec = spec
        self._seen: list[Array] = []
        self.spatial = is_spatial(spec.obs)

    def __len__(self) -> int:
        return len(self._seen)

    def see(self, obs: Obs) -> None:
        """``obs`` [1, ...] of one more step."""
        if isinstance(obs, dict):
            self._seen.append(np.concatenate([np.ravel(obs[name][0]).astype(np.float64) for name in sorted(obs)]))
        elif self.spatial:
            self._seen.append(newest_frames(obs[0], self._spec.frame_stack))
        else:
            self._seen.append(np.ravel(obs[0]).astype(np.float64))

    def heatmap(self) -> Heatmap:
        if not self._seen:
            raise UsageError("no state was visited: a heatmap needs at least 1 step")
        seen = np.stack(self._seen)
        return self._on_screen(seen) if self.spatial else _on_plane(seen)

    def _on_screen(self, seen: Array) -> Heatmap:
        steps, _, height, width = seen.shape  # [T, C, H, W]
        # a shade that was really there: between two that were there equally long lies one that never was
        usual = np.quantile(seen, 0.5, axis=0, method="lower").astype(np.int16)
        there = np.zeros((height, width), np.float64)
        for frames in seen:  # one at a time: all differences at once would take several times the memory
            there += (np.abs(frames.astype(np.int16) - usual) > NOTICEABLE).any(axis=0)
        board = isinstance(self._spec.obs, ArraySpec) and self._spec.obs.dtype == np.bool_
        return Heatmap(
            kind="board" if board else "screen",
            share=(there / steps).astype(np.float32),
            steps=steps,
            x_edges=np.arange(width + 1, dtype=np.float32),
            y_edges=np.arange(height + 1, dtype=np.float32),
            x_label="column" if board else "x (pixels)",
            y_label="row" if board else "y (pixels)",
            background=usual.max(axis=0).astype(np.uint8),
        )


def is_spatial(spec: ArraySpec | dict[str, ArraySpec]) -> bool:
    """Whether observations are pictures or boards [C, H, W]."""
    return isinstance(spec, ArraySpec) and len(spec.shape) == 3 and min(spec.shape[1:]) >= 3


def newest_frames(obs: Array, frame_stack: int | None) -> Array:
    """[C, H, W] → the newest picture of a stack [1, H, W], or all channels of a single one, in shades from 0 to 255."""
    frames = obs[-1:] if frame_stack else obs
    if frames.dtype == np.bool_:
        return frames.astype(np.uint8) * np.uint8(255)
    return frames if frames.dtype == np.uint8 else np.clip(frames, 0, 255).astype(np.uint8)


def _on_plane(seen: Array) -> Heatmap:
    """[T, D] numbers; axes are observation numbers where there are at most two."""
    steps, count = seen.shape
    if count <= 2:
        labels = [f"observation {number}" for number in range(count)]
        points = seen
    else:
        points, kept = principal_components(seen)
        labels = [
            f"principal component {number + 1} ({share:.0%} of the variance)" for number, share in enumerate(kept)
        ]
    x = points[:, 0]
    y = points[:, 1] if points.shape[1] > 1 else np.zeros(steps)
    bins = [BINS, BINS if points.shape[1] > 1 else 1]
    found, x_edges, y_edges = np.histogram2d(x, y, bins=bins)
    return Heatmap(
        kind="plane",
        share=(found.T / steps).astype(np.float32),
        steps=steps,
        x_edges=x_edges.astype(np.float32),
        y_edges=y_edges.astype(np.float32),
        x_label=labels[0],
        y_label=labels[1] if len(labels) > 1 else "",
    )


def principal_components(seen: Array) -> tuple[Array, Array]:
    """[T, 2] along the two directions in which standardized numbers vary most, and each one's share of the variance."""
    spread = seen.std(axis=0)
    scaled = (seen - seen.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    _, sizes, directions = np.linalg.svd(scaled, full_matrices=False)
    sizes, directions = _padded(sizes, directions)
    # a direction and its opposite are the same: the larger half looks forward
    signs = np.sign(directions[np.arange(2), np.abs(directions).argmax(axis=1)])
    total = max(float((sizes**2).sum()), 1e-12)
    return scaled @ (directions * np.where(signs == 0, 1, signs)[:, None]).T, sizes[:2] ** 2 / total


def _padded(sizes: Array, directions: Array) -> tuple[Array, Array]:
    """A single step has one direction; the second is then nowhere."""
    if len(sizes) >= 2:
        return sizes, directions[:2]
    return np.append(sizes, 0.0), np.concatenate([directions, np.zeros_like(directions)])
