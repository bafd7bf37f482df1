"""PQN: its targets by brute force, its learning step by hand, its configuration."""

import copy

import numpy as np
import pytest
import torch

from retrograd.build.builder import Builder
from retrograd.config import ConfigManager
from retrograd.core.errors import FailureGate, UsageError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Rollout, Step
from retrograd.replay import RolloutBuffer

SPEC = EnvSpec("test", ArraySpec((6,), np.dtype(np.float32)), DiscreteActions(3))
SMALL = ("env=cartpole", "hardware.device=cpu", "agent=pqn", "training.num_envs=2", "agent.rollout_steps=5")


def make_agent(*overrides):
    config = ConfigManager(None).compose([*SMALL, "agent.minibatches=2", *overrides])
    return Builder(config).agent(SPEC)


def play(agent, rng, steps=5, rows=2):
    """A rollout with a terminal, a time limit and a lost life, and all that brute force needs."""
    buffer = RolloutBuffer(steps, rows, gamma=0.9, gae_lambda=0.65)
    terminated, truncated = rng.random((2, steps, rows)) < 0.25
    truncated &= ~terminated
    reset = truncated | (terminated & (rng.random((steps, rows)) < 0.5))
    obs = rng.normal(size=(steps + 1, rows, 6)).astype(np.float32)
    reward = rng.normal(size=(steps, rows)).astype(np.float32)
    seen = []
    for t in range(steps):
        decision = agent.act(obs[t], step=0, explore=True)
        final = rng.normal(size=(rows, 6)).astype(np.float32)
        after = np.where(reset[t][:, None], final, obs[t + 1])
        buffer.add(
            Step(obs[t], decision.action, reward[t], terminated[t], truncated[t], reset[t], after, decision.extras)
        )
        seen.append(agent.values(after))
    return buffer.finish(agent.values), reward, terminated, terminated | truncated, np.stack(seen)


def test_targets_are_lambda_returns_of_the_maximum():
    """REQ ALGO-1: R = r + γ [λ R' + (1 - λ) max Q'], cut at ends, with the true successor at time limits."""
    agent, rng = make_agent(), np.random.default_rng(3)
    for _ in range(20):
        rollout, reward, terminated, cut, after = play(agent, rng)
        expected = np.zeros_like(reward)
        for t in range(4, -1, -1):
            for row in range(2):
                alone = t == 4 or cut[t, row]
                future = after[t, row] if alone else 0.65 * expected[t + 1, row] + 0.35 * after[t, row]
                expected[t, row] = reward[t, row] + (0.0 if terminated[t, row] else 0.9 * future)
        assert np.allclose(rollout.returns.numpy(), expected, atol=1e-5)


def rollout(size=8):
    generator = torch.Generator().manual_seed(0)
    flat = torch.zeros(size, 1)
    return Rollout(
        obs=torch.randn(size, 1, 6, generator=generator), action=torch.randint(3, (size, 1), generator=generator),
        reward=flat, log_prob=flat, value=flat, advantage=flat,
        returns=torch.randn(size, 1, generator=generator), extras={},
    )  # fmt: skip


def test_one_minibatch_is_one_step_of_half_the_squared_error():
    agent = make_agent("agent.minibatches=1", "agent.epochs=1", "agent.max_grad_norm=null")
    twin = copy.deepcopy(agent.network)
    optimizer = torch.optim.RAdam(twin.parameters(), lr=2.5e-4, eps=1e-8)
    batch = rollout()
    chosen = twin(batch.obs[:, 0]).gather(1, batch.action)
    (0.5 * (batch.returns - chosen) ** 2).mean().backward()
    optimizer.step()
    agent.update(batch, step=8)
    for ours, theirs in zip(agent.network.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-7)


def test_every_step_is_learned_from_once_an_epoch():
    agent = make_agent("agent.minibatches=4", "agent.epochs=3")
    agent.update(rollout(), step=8)
    assert agent.updates == 12


def test_the_learning_rate_may_fall():
    agent = make_agent("preset.lr=0.1", "preset.lr_end=0.0", "training.total_env_frames=80")
    agent.update(rollout(), step=48)
    assert agent.optimizer.param_groups[0]["lr"] == pytest.approx(0.05)


def test_what_is_not_finite_stops_the_run():
    agent, batch = make_agent(), rollout()
    batch.returns[3] = float("nan")
    with pytest.raises(FailureGate, match="step 8"):
        agent.update(batch, step=8)


@pytest.mark.parametrize("network", ["nature", "dueling"])
def test_every_hidden_layer_is_normalized(network):
    agent = make_agent(f"agent.network={network}")
    modules = list(agent.network.modules())
    active = sum(isinstance(module, torch.nn.ReLU) for module in modules)
    assert sum(isinstance(module, torch.nn.LayerNorm) for module in modules) == active > 1


def test_the_papers_settings():
    config = ConfigManager(None).compose(["agent=pqn"])
    agent = config["agent"]
    assert (config["training"]["num_envs"], agent["rollout_steps"], agent["epochs"], agent["minibatches"]) == (
        128,
        32,
        2,
        32,
    )
    assert (config["preset"]["lr"], agent["q_lambda"], agent["max_grad_norm"]) == (2.5e-4, 0.65, 10.0)
    assert config["preset"]["epsilon_end"] == 0.001


def test_it_refuses_a_replay_and_too_many_minibatches():
    with pytest.raises(UsageError, match="no effect"):
        ConfigManager(None).compose(["agent=pqn", "replay=uniform"])
    with pytest.raises(UsageError, match="minibatches"):
        make_agent("agent.minibatches=11")


def test_parts_restore_the_agent():
    agent, twin = make_agent(), make_agent("seed=9")
    agent.update(rollout(), step=8)
    for name, part in twin.parts.items():
        part.load_state_dict(agent.parts[name].state_dict())
    obs = np.ones((3, 6), np.float32)
    assert np.array_equal(agent.values(obs), twin.values(obs))
    assert twin.updates == agent.updates
