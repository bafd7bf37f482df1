"""A saliency map over a picture, in the colors of the other heatmaps."""

from __future__ import annotations

import numpy as np

from retrograd.dashboard.arrays import Array

# violet, red, orange, pale yellow: lightness grows all the way, so that it reads without color, too
STOPS = np.array([(87, 16, 110), (188, 55, 84), (249, 142, 9), (252, 255, 164)], np.float32)
SCALE = [[place / 3, f"rgb({red:.0f},{green:.0f},{blue:.0f})"] for place, (red, green, blue) in enumerate(STOPS)]
TALL_PIXELS = 420
FADING = 0.6  # how much of its color the picture loses


def enlarge(picture: Array, tall: int = TALL_PIXELS) -> Array:
    """Small pictures in whole multiples, so that pixels stay sharp."""
    times = max(1, tall // max(picture.shape[0], 1))
    large: Array = picture.repeat(times, axis=0).repeat(times, axis=1)
    return large


def lay_over(picture: Array, shares: Array, opacity: float) -> Array:
    """``picture`` [H, W, 3] uint8 fading to gray under ``shares`` [h, w] from 0 to 1, stretched to its size."""
    wide = np.clip(stretch(shares, picture.shape[0], picture.shape[1]), 0, 1)
    gray = picture.astype(np.float32).mean(axis=2, keepdims=True)
    ground = picture * (1 - FADING * opacity) + gray * (FADING * opacity)
    place = wide * (len(STOPS) - 1)
    low = np.minimum(place.astype(int), len(STOPS) - 2)
    part = (place - low)[..., None]
    colors = STOPS[low] * (1 - part) + STOPS[low + 1] * part
    # faint looks are looks, too, but what nearly all pixels have is none
    weight = opacity * np.clip(wide * 1.5, 0, 1)[..., None]
    laid: Array = np.clip(ground * (1 - weight) + colors * weight, 0, 255).astype(np.uint8)
    return laid


def stretch(shares: Array, height: int, width: int) -> Array:
    """Linear interpolation to another size."""
    rows, columns = _weights(shares.shape[0], height), _weights(shares.shape[1], width)
    stretched: Array = rows @ shares.astype(np.float32) @ columns.T
    return stretched


def _weights(few: int, many: int) -> Array:
    """[many, few] the share of each old line in each new one."""
    place = np.clip((np.arange(many) + 0.5) * few / many - 0.5, 0, few - 1)
    weights: Array = np.clip(1 - np.abs(place[:, None] - np.arange(few)), 0, None).astype(np.float32)
    return weights
