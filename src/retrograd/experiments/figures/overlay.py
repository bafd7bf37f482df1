"""A saliency map laid over a picture: the picture fades to gray, the map glows where the agent looks."""

from __future__ import annotations

import cv2
import numpy as np

from retrograd.core.types import Array

# violet, red, orange, pale yellow: lightness grows all the way, so that it reads without color, too
STOPS = np.array([(87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164)], np.float32)
FADING = 0.6  # how much of its color the picture loses


def glow(shares: Array) -> Array:
    """[H, W] from 0 to 1 → colors [H, W, 3] from 0 to 255."""
    place = np.clip(shares, 0, 1) * (len(STOPS) - 1)
    low = np.minimum(place.astype(int), len(STOPS) - 2)
    part = (place - low)[..., None]
    colors: Array = STOPS[low] * (1 - part) + STOPS[low + 1] * part
    return colors


def lay_over(picture: Array, shares: Array | None, opacity: float = 0.75) -> Array:
    """``picture`` [H, W, 3] uint8 with ``shares`` [h, w] from 0 to 1 over it, stretched to its size."""
    if shares is None:
        return picture
    height, width = picture.shape[:2]
    wide = cv2.resize(shares.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR)
    gray = picture.astype(np.float32).mean(axis=2, keepdims=True)
    ground = picture * (1 - FADING * opacity) + gray * (FADING * opacity)
    # faint looks are looks, too, but what nearly all pixels have is none
    weight = opacity * np.clip(wide * 1.5, 0, 1)[..., None]
    laid: Array = np.clip(ground * (1 - weight) + glow(wide) * weight, 0, 255).astype(np.uint8)
    return laid


def reference_size(largest: Array) -> float:
    """What counts as full in all maps of a game: the size that nine in ten of their maxima stay below, never 0."""
    return max(float(np.quantile(largest, 0.9)), 1e-30) if len(largest) else 1.0
