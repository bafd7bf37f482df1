"""Saliency: which pixels a network's outputs hang on, by three methods.

Perturbation (Greydanus et al. 2018, arXiv:1711.00138):  I' = I (1 - M) + blur(I) M with a Gaussian mask M around each
point of a grid, S = ½ ‖f(I) - f(I')‖².
Gradient (Simonyan et al. 2014, arXiv:1312.6034):  |∂f_a / ∂I|, the largest among the channels.
Integrated gradients (Sundararajan et al. 2017, arXiv:1703.01365):  (I - I₀) ∫ ∂f_a(I₀ + α (I - I₀)) / ∂I dα, I₀ black.

Here f are logits or action values, never probabilities, which saturate. All frames of a stack are blurred together: an
agent would otherwise still see in the older ones what the newest hides. Maps are raw: dividing each by its own maximum
would make a picture that says nothing look like one that does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

# images [B, C, H, W] as floats → named outputs [B, K]; it may change its argument, as encoders scale in place
Outputs = Callable[[Tensor], dict[str, Tensor]]
Maps = dict[str, Tensor]  # [H, W] for each output, not negative
CHUNK = 64  # images at once: 7 MB of Atari frames


@dataclass(frozen=True, slots=True)
class Patches:
    """Where and how an image is blurred, in pixels; the defaults are the paper's, for 84 × 84."""

    every: int = 5
    mask_sigma: float = 5.0
    blur_sigma: float = 3.0


BOARD_PATCHES = Patches(every=1, mask_sigma=0.5, blur_sigma=1.0)  # a cell at a time


@torch.no_grad()
def perturbation_maps(outputs: Outputs, image: Tensor, patches: Patches) -> Maps:
    """How much each output changes when the surroundings of a pixel are blurred; ``image`` is [1, C, H, W]."""
    height, width = image.shape[-2:]
    masks, to_rows, to_columns = _grid(height, width, patches, image.device)
    seen = outputs(image.clone())
    difference = blur(image, patches.blur_sigma) - image
    parts: dict[str, list[Tensor]] = {name: [] for name in seen}
    for begin in range(0, len(masks), CHUNK):
        changed = outputs(image + masks[begin : begin + CHUNK] * difference)
        for name, before in seen.items():
            parts[name].append((changed[name] - before).square().sum(-1).mul(0.5))
    rows, columns = to_rows.shape[1], to_columns.shape[1]
    return {name: to_rows @ torch.cat(part).view(rows, columns) @ to_columns.T for name, part in parts.items()}


def gradient_maps(outputs: Outputs, image: Tensor, action: int | None) -> Maps:
    """Steepness of each output, of ``action`` where there is one for each action; ``image`` is [1, C, H, W]."""
    pixels = image.clone().requires_grad_(True)
    seen = outputs(pixels.clone())
    maps = {}
    for name, output in seen.items():
        (slope,) = torch.autograd.grad(_pick(output, action).sum(), pixels, retain_graph=True)
        maps[name] = slope[0].abs().amax(0)
    return maps


def integrated_maps(outputs: Outputs, image: Tensor, action: int | None, points: int = 32) -> Maps:
    """Size of each pixel's share in the output, all channels together."""
    shares = integrate_gradients(outputs, image, torch.zeros_like(image), action, points)
    return {name: share.sum(0).abs() for name, share in shares.items()}


def integrate_gradients(
    outputs: Outputs, image: Tensor, base: Tensor, action: int | None, points: int = 32
) -> dict[str, Tensor]:
    """[C, H, W] for each output: shares of every number of the image in f(image) - f(base), which they add up to."""
    places = (torch.arange(points, device=image.device, dtype=image.dtype) + 0.5) / points  # midpoints
    line = (base + places.view(-1, 1, 1, 1) * (image - base)).requires_grad_(True)  # [points, C, H, W]
    shares = {}
    for name, output in outputs(line.clone()).items():
        (slopes,) = torch.autograd.grad(_pick(output, action).sum(), line, retain_graph=True)
        shares[name] = slopes.mean(0) * (image - base)[0]
    return shares


def blur(image: Tensor, sigma: float) -> Tensor:
    """Gaussian blur of [B, C, H, W], every channel by itself; the border goes on as it is."""
    reach = max(1, math.ceil(3 * sigma))
    offsets = torch.arange(-reach, reach + 1, device=image.device, dtype=image.dtype)
    weights = torch.softmax(-offsets.square() / (2 * sigma**2), 0)
    flat = F.pad(image.flatten(0, 1).unsqueeze(1), (reach, reach, reach, reach), mode="replicate")  # [B · C, 1, …]
    smooth = F.conv2d(F.conv2d(flat, weights.view(1, 1, 1, -1)), weights.view(1, 1, -1, 1))
    return smooth.view_as(image)


def _pick(output: Tensor, action: int | None) -> Tensor:
    """[B] one number of each row: that of the action, the only one there is, or the size of real-valued actions."""
    if output.shape[-1] == 1:
        return output[:, 0]
    return output.norm(dim=-1) if action is None else output[:, action]


@lru_cache(maxsize=4)
def _grid(height: int, width: int, patches: Patches, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Masks [P, 1, H, W] with 1 at their centers, and what spreads the grid to rows [H, Y] and columns [W, X]."""
    falls, spreads = [], []
    for size in (height, width):
        pixels = torch.arange(size, device=device, dtype=torch.float32)
        points = torch.arange((size - 1) % patches.every // 2, size, patches.every, device=device).float()
        falls.append(torch.exp(-(pixels - points[:, None]).square() / (2 * patches.mask_sigma**2)))  # [points, pixels]
        inside = pixels.clamp(points[0], points[-1])
        spreads.append((1 - (inside[:, None] - points).abs() / patches.every).clamp_min(0))
    masks = falls[0][:, None, :, None] * falls[1][None, :, None, :]
    return masks.flatten(0, 1).unsqueeze(1), spreads[0], spreads[1]
