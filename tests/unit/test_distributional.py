"""Projections and quantile losses against rlax's numbers and against their own definitions."""

import json
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest
import torch

from retrograd.core.distributional import project_categorical, quantile_huber, quantile_midpoints
from retrograd.core.returns import gae

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "value.json").read_text())


def tensors(name):
    return {key: torch.tensor(value, dtype=torch.float64) for key, value in GOLDEN[name].items()}


def test_projection_equals_rlax_on_hits_edges_and_beyond():
    case = tensors("projection")
    projected = project_categorical(case["places"], case["mass"], case["support"])
    assert torch.allclose(projected, case["projected"], atol=1e-6)


@pytest.mark.parametrize("reward", [-1e6, -10.0, -9.9, -0.4, 0.0, 0.2, 0.4, 9.8, 10.0, 10.4, 1e6])
@pytest.mark.parametrize("discount", [0.0, 0.99, 1.0])
def test_no_mass_is_lost_anywhere(reward, discount):
    """REQ NET-2: clipped atoms and exact hits keep their mass, in the precision of training."""
    support = torch.linspace(-10, 10, 51)
    mass = torch.softmax(torch.randn(3, 51, generator=torch.Generator().manual_seed(0)), 1)
    projected = project_categorical((reward + discount * support).expand(3, -1), mass, support)
    assert torch.allclose(projected.sum(1), torch.ones(3), atol=1e-6)
    assert (projected >= 0).all()


def test_the_mean_is_kept_inside_the_support():
    support = torch.linspace(-10, 10, 51, dtype=torch.float64)
    mass = torch.softmax(torch.randn(4, 51, generator=torch.Generator().manual_seed(1), dtype=torch.float64), 1)
    places = (0.3 + 0.9 * support).expand(4, -1)
    projected = project_categorical(places, mass, support)
    assert torch.allclose(projected @ support, (mass * places).sum(1), atol=1e-9)


def test_the_scatter_equals_the_triangular_kernel():
    """m_i = Σ_j [1 - |Tz_j - z_i| / Δz]₀¹ p_j, written as a matrix."""
    generator = torch.Generator().manual_seed(2)
    support = torch.linspace(-2, 2, 9, dtype=torch.float64)
    places = torch.randn(5, 20, generator=generator, dtype=torch.float64) * 3
    mass = torch.rand(5, 20, generator=generator, dtype=torch.float64)
    distance = (places.clamp(-2, 2).unsqueeze(2) - support).abs() / 0.5
    kernel = (1 - distance).clamp(0, 1)
    expected = (mass.unsqueeze(2) * kernel).sum(1)
    assert torch.allclose(project_categorical(places, mass, support), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["quantile", "quantile_huber"])
def test_quantile_loss_equals_rlax(name):
    case = tensors(name)
    rows = torch.arange(len(case["reward"]))
    best = case["selector"].mean(2).argmax(1)
    goal = case["reward"][:, None] + case["discount"][:, None] * case["next_places"][rows, best]
    predicted = case["places"][rows, case["action"].long()]
    loss = quantile_huber(predicted, case["fractions"], goal, float(case["kappa"]))
    assert torch.allclose(loss, case["loss"], atol=1e-6)


def test_swapping_the_axes_of_the_quantile_loss_would_show():
    """The mutant that tilts along the goal's axis instead of the prediction's."""
    case = tensors("quantile")
    square = case["next_places"][:, 0, :5]
    right = quantile_huber(case["places"][:, 0], case["fractions"], square, 0.0)
    wrong = quantile_huber(square, case["fractions"], case["places"][:, 0], 0.0)
    assert not torch.allclose(right, wrong, atol=1e-3)


def test_the_loss_is_a_sum_over_predictions_and_a_mean_over_goals():
    predicted, goal = torch.zeros(1, 4), torch.full((1, 3), 2.0)
    half = torch.full((4,), 0.5)
    assert quantile_huber(predicted, half, goal, 0.0).item() == pytest.approx(4 * 0.5 * 2.0)
    assert quantile_huber(predicted, half, goal, 1.0).item() == pytest.approx(4 * 0.5 * 1.5)


def test_it_finds_the_quantiles_of_a_normal_distribution():
    """Quantiles of N(0, 100²) within 3 % of the spread; the batch is not as large as the number of quantiles."""
    fractions = quantile_midpoints(9)
    sample = torch.tensor([NormalDist(0, 100).inv_cdf((i + 0.5) / 2000) for i in range(2000)])
    places = torch.zeros(1, 9, requires_grad=True)
    optimizer = torch.optim.Adam([places], lr=5.0)
    for update in range(400):
        optimizer.param_groups[0]["lr"] = 5.0 * (1 - update / 400) + 0.05
        optimizer.zero_grad()
        quantile_huber(places, fractions, sample[None], 1.0).sum().backward()
        optimizer.step()
    expected = [NormalDist(0, 100).inv_cdf(float(fraction)) for fraction in fractions]
    assert np.abs(places.detach().numpy()[0] - expected).max() < 3.0


def test_midpoints():
    assert quantile_midpoints(4).tolist() == [0.125, 0.375, 0.625, 0.875]


def test_lambda_returns_equal_rlax():
    """Advantage plus value is the λ-return, whatever the values of the states themselves."""
    case = {key: np.asarray(value) for key, value in GOLDEN["lambda"].items()}
    reward, discount, after = case["reward"], case["discount"], case["next_value"]
    value = np.concatenate([np.random.default_rng(0).normal(size=(1, 3)), after[:-1]])
    cut = np.zeros_like(reward, bool)
    advantage = gae(reward, discount, value, after, cut, gae_lambda=float(case["lambda"]))
    assert np.allclose(advantage + value, case["returns"], atol=1e-6)
