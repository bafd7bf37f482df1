"""Noisy layers: the noise's shape and statistics, when it changes, and that nobody shares it."""

import copy

import numpy as np
import pytest
import torch

from retrograd.build.builder import Builder
from retrograd.config import ConfigManager
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Transitions
from retrograd.networks.layers import NoiseSource, NoisyLinear, perturb

SPEC = EnvSpec("test", ArraySpec((6,), np.dtype(np.float32)), DiscreteActions(3))
IMAGES = EnvSpec("test", ArraySpec((4, 84, 84), np.dtype(np.uint8), 0, 255), DiscreteActions(3), 4, 4)
AFTER_WARMUP = 10**7
OBS = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)


def make_agent(*overrides, spec=SPEC):
    return Builder(ConfigManager(None).compose(["env=cartpole", "hardware.device=cpu", *overrides])).agent(spec)


def batch(size=4):
    generator = torch.Generator().manual_seed(1)
    return Transitions(
        torch.randn(size, 6, generator=generator), torch.arange(size) % 3, torch.randn(size, generator=generator),
        torch.full((size,), 0.9), torch.randn(size, 6, generator=generator), torch.ones(size), np.arange(size),
    )  # fmt: skip


def noisy_values(agent):
    with torch.no_grad():
        return agent.online.get_q_values(torch.from_numpy(OBS), noisy=True)


@pytest.mark.parametrize("rows", [4, NoisyLinear.COMPOSE_FROM_ROWS])
def test_the_layer_equals_its_noisy_matrix_of_rank_one(rows):
    layer, source = NoisyLinear(7, 5, sigma=0.5), NoiseSource(3)
    perturb([layer], source.fresh(12))
    noise_in, noise_out = layer.noise
    matrix_noise = torch.outer(noise_out, noise_in)
    assert torch.linalg.matrix_rank(matrix_noise) == 1
    features = torch.randn(rows, 7)
    weight = layer.weight + layer.weight_sigma * matrix_noise
    bias = layer.bias + layer.bias_sigma * noise_out
    assert torch.allclose(layer(features), features @ weight.T + bias, atol=1e-6)


def test_noise_has_the_variances_of_f():
    """Var f(ε) = E|ε| = √(2/π) for the bias, its square 2/π for the weights."""
    noise = NoiseSource(0).fresh(400_000).double()
    assert noise.mean().abs() < 0.01
    assert noise.var().item() == pytest.approx(0.7979, rel=0.02)
    assert (noise[:200_000] * noise[200_000:]).var().item() == pytest.approx(0.6366, rel=0.02)


def test_initial_values():
    layer = NoisyLinear(16, 400, sigma=0.5)
    assert (layer.weight_sigma == 0.125).all()
    assert (layer.bias_sigma == 0.125).all()
    assert layer.weight.abs().max() <= 0.25
    assert layer.weight.std().item() == pytest.approx(0.25 / np.sqrt(3), rel=0.1)
    assert layer.bias.abs().max() <= 0.25


def test_without_noise_the_layer_is_its_mean():
    layer = NoisyLinear(3, 2, sigma=0.5)
    features = torch.randn(4, 3)
    assert torch.equal(layer(features), torch.nn.functional.linear(features, layer.weight, layer.bias))


def test_online_target_and_selector_never_see_the_same_noise():
    agent = make_agent("agent.noisy=true", "agent.double=true")
    seen = []
    for layer in (agent.online._noisy[0], agent.target._noisy[0]):
        layer.register_forward_hook(lambda module, *_: seen.append(module.noise[0].clone()))
    agent.update(batch(), step=1)
    agent.update(batch(), step=2)
    assert len(seen) == 6  # prediction, target, selector, twice
    assert all(not torch.equal(a, b) for i, a in enumerate(seen) for b in seen[:i])


def test_one_noise_serves_the_whole_batch():
    agent = make_agent("agent.noisy=true")
    row = torch.randn(1, 6).expand(8, -1)
    q = agent.online(row)
    assert torch.allclose(q, q[:1].expand_as(q), atol=1e-6)


def test_noise_of_acting_changes_after_each_update_and_not_before():
    """REQ ALGO-2"""
    agent = make_agent("agent.noisy=true")
    first = noisy_values(agent)
    agent.act(OBS, step=AFTER_WARMUP, explore=True)
    assert torch.equal(first, noisy_values(agent))
    held = agent.noise.held(0).clone()
    agent.update(batch(), step=1)
    noisy_values(agent)
    assert not torch.equal(held, agent.noise.held(0))


def test_noise_of_acting_may_change_with_each_step():
    agent = make_agent("agent.noisy=true", "agent.noise_each_step=true")
    agent.act(OBS, step=AFTER_WARMUP, explore=True)
    first = agent.noise.held(0).clone()
    agent.act(OBS, step=AFTER_WARMUP, explore=True)
    assert not torch.equal(first, agent.noise.held(0))


@pytest.mark.parametrize("distributional", ["null", "c51", "iqn"])
def test_evaluation_is_without_noise_and_draws_none(distributional):
    agent = make_agent("agent.noisy=true", f"agent.distributional={distributional}", "eval=greedy")
    agent.update(batch(), step=1)
    noisy_values(agent)
    obs = torch.from_numpy(OBS)
    with torch.no_grad():
        noisy = agent.online.get_q_values(obs, noisy=True)
        before = copy.deepcopy(agent.noise.state_dict())
        assert torch.equal(agent.online.get_q_values(obs), agent.online.get_q_values(obs))
        assert not torch.equal(agent.online.get_q_values(obs), noisy)
    agent.act(OBS, step=AFTER_WARMUP, explore=False)
    assert torch.equal(before["generator"], agent.noise.state_dict()["generator"])
    assert torch.equal(before["held"], agent.noise.state_dict()["held"])


@pytest.mark.parametrize("munchausen", ["false", "true"])
def test_a_noisy_implicit_target_is_one_network_in_an_update(munchausen):
    """What chooses in the next state and what is expected there see the same noise, at other fractions."""
    agent = make_agent("agent.noisy=true", "agent.distributional=iqn", f"agent.munchausen={munchausen}")
    seen = []
    agent.target._noisy[0].register_forward_hook(lambda module, *_: seen.append(module.noise[0].clone()))
    agent.update(batch(), step=1)
    assert torch.equal(seen[-1], seen[-2])
    assert not any(torch.equal(seen[-1], other) for other in seen[:-2])  # that of the state itself


def test_noise_takes_the_place_of_epsilon():
    warm = ["agent.noisy=true", "training.warmup_random_steps=10", "preset.epsilon_end=0.5"]
    agent = make_agent(*warm)
    assert agent.metrics(9)["epsilon"] == 1.0
    assert agent.metrics(10)["epsilon"] == 0.0
    kept = make_agent(*warm, "agent.noisy_epsilon=true")
    assert kept.metrics(10**9)["epsilon"] == 0.5


def test_noise_is_no_part_of_the_network_and_resumes_exactly():
    agent = make_agent("agent.noisy=true", "agent.double=true")
    agent.update(batch(), step=1)
    noisy_values(agent)
    assert not [name for name in agent.online.state_dict() if "noise" in name]
    saved = copy.deepcopy({name: part.state_dict() for name, part in agent.parts.items()})
    twin = make_agent("agent.noisy=true", "agent.double=true", "seed=7")
    for name, part in twin.parts.items():
        part.load_state_dict(saved[name])
    assert torch.equal(noisy_values(agent), noisy_values(twin))
    for step in (2, 3):
        agent.update(batch(), step=step)
        twin.update(batch(), step=step)
    assert torch.equal(noisy_values(agent), noisy_values(twin))


def test_only_layers_after_the_trunk_are_noisy_and_all_of_them():
    for overrides, count in ((["agent.noisy=true"], 2), (["agent.noisy=true", "agent.network=dueling"], 4)):
        agent = make_agent(*overrides, spec=IMAGES)
        assert len(agent.online._noisy) == count
        assert not [module for module in agent.online.head.modules() if isinstance(module, torch.nn.Linear)]
        assert not [module for module in agent.online.encoder.modules() if isinstance(module, NoisyLinear)]


def test_sigma_learns():
    agent = make_agent("agent.noisy=true", "preset=modern")
    before = agent.online._noisy[0].weight_sigma.clone()
    agent.update(batch(), step=1)
    assert not torch.equal(before, agent.online._noisy[0].weight_sigma)
