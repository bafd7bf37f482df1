"""Maths of value distributions: pure functions on tensors.

A distribution is either masses on given places (categorical) or places of equal mass (quantiles).
"""

from __future__ import annotations

import torch
from torch import Tensor


def project_categorical(places: Tensor, mass: Tensor, support: Tensor) -> Tensor:
    """Masses [B, K] at any ``places`` [B, K], moved onto the evenly spaced ``support`` [Z]; [B, Z].

    Bellemare et al. 2017, arXiv:1707.06887, eq. 7: what lies between two atoms is shared between them by
    nearness, what lies outside goes to the edge atom whole. The mean is kept inside the support.
    """
    last = len(support) - 1
    spacing = (support[last] - support[0]) / last
    position = ((places - support[0]) / spacing).clamp(0, last)  # [B, K] in units of atoms
    # the left neighbor is never the last atom, so a place that hits an atom still has two distinct neighbors
    left = position.floor().clamp(max=last - 1)
    share = position - left  # of the right neighbor
    index = torch.cat([left, left + 1], dim=1).long()  # [B, 2K]
    shared = torch.cat([mass * (1 - share), mass * share], dim=1)
    return mass.new_zeros(len(mass), len(support)).scatter_add_(1, index, shared)


def quantile_midpoints(count: int, device: torch.device | None = None) -> Tensor:
    """τ̂_i = (2i - 1) / 2N for i = 1 … N; [N]."""
    return (torch.arange(count, device=device, dtype=torch.float32) + 0.5) / count


def quantile_huber(predicted: Tensor, fractions: Tensor, goal: Tensor, kappa: float) -> Tensor:
    """The loss [B] of predicted quantiles [B, N] at ``fractions`` [N] or [B, N] against samples ``goal`` [B, M].

    Dabney et al. 2018, arXiv:1710.10044, eq. 10: Σ_i mean_j |τ_i - 1{u_ij < 0}| Huber_κ(u_ij) / κ with
    u_ij = goal_j - predicted_i. ``kappa=0`` is the plain quantile loss |τ - 1{u < 0}| |u|.
    """
    error = goal.unsqueeze(1) - predicted.unsqueeze(2)  # [B, N, M]
    size = error.abs()
    if kappa > 0:
        size = torch.where(size <= kappa, error.square() / (2 * kappa), size - kappa / 2)
    tilt = (fractions.unsqueeze(-1) - (error.detach() < 0).float()).abs()  # [B, N, M]
    return (tilt * size).mean(2).sum(1)
