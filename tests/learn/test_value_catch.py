"""Catch through the whole pipeline, for each algorithm of the value family; and a deep sea that only noise explores.

Mean score of 64 games after training, best possible 1, random -0.6: 1.0 for every algorithm (one seed each);
with a target never copied -0.19, without a future -0.25. PQN 1.0 with two seeds, without a future at most 0.16.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from retrograd.build.builder import Builder
from retrograd.build.run import make_plan
from retrograd.config import ConfigManager
from retrograd.envs.toys.deep_sea import DeepSea
from retrograd.training.evaluate import evaluate
from retrograd.training.run import Run

SMALL = (
    "preset=modern", "hardware.device=cpu", "preset.lr=0.001", "training.num_envs=8", "eval.num_envs=8",
    "training.warmup_random_steps=400", "replay.capacity=20000", "agent.batch_size=32", "agent.update_frequency=4",
    "agent.target_update_freq=50", "preset.epsilon_start=1.0", "preset.epsilon_end=0.05", "eval.epsilon=0.0",
    "preset.epsilon_decay_frames=3000", "replay.beta_decay_frames=10000", "seed=1",
)  # fmt: skip
ATOMS = ("agent.v_min=-2", "agent.v_max=2", "agent.atoms=21")
FRACTIONS = ("agent.iqn_samples=8", "agent.iqn_target_samples=8", "agent.iqn_policy_samples=8", "agent.iqn_cosines=16")
ALGORITHMS = {
    "dqn": (),
    "c51": ("agent.distributional=c51", *ATOMS),
    "qr_dqn": ("agent.distributional=quantile", "agent.quantiles=11"),
    "iqn": ("agent.distributional=iqn", *FRACTIONS),
    "munchausen": ("agent.munchausen=true",),
    "rainbow": ("agent=rainbow", "preset=modern", "preset.lr=0.001", *ATOMS),
}


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def train(*overrides, steps, env=None, name="retrograd/Catch-v0", base=SMALL):
    config = ConfigManager(None).compose([f"env={name}", *base, *overrides])
    builder = Builder(config, env=env)
    envs = builder.environments()
    scores = []
    run = Run(
        replace(make_plan(config, envs.spec), total_steps=steps),
        on_episode=lambda episode, *_: scores.append(episode.score),
        on_update=lambda _: None,
    )
    agent = builder.agent(envs.spec)
    for _ in builder.loop(agent, envs, run).begin():
        pass
    envs.close()
    return builder, agent, scores


def score(*overrides, steps=5000, base=SMALL):
    builder, agent, _ = train(*overrides, steps=steps, base=base)
    envs = builder.evaluation_environments(0)
    result = evaluate(agent, envs, episodes=64, step=10**9)
    envs.close()
    return float(np.mean(result.returns))


@pytest.mark.slow
@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_catches(name):
    assert score(*ALGORITHMS[name]) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ["agent.target_update_freq=100000", "agent.gamma=0.0"])
def test_without_a_moving_target_or_a_future_it_does_not(mutant):
    assert score(mutant) < 0.6


PARALLEL = (
    "agent=pqn", "preset=pqn", "training.num_envs=16", "training.warmup_random_steps=0", "agent.rollout_steps=16",
    "agent.minibatches=4", "preset.lr=0.001", "preset.epsilon_decay_frames=8000", "preset.epsilon_end=0.05",
    "hardware.device=cpu", "eval.epsilon=0.0", "eval.num_envs=8", "seed=1",
)  # fmt: skip


@pytest.mark.slow
def test_parallel_q_learning_catches_too():
    assert score(steps=16000, base=PARALLEL) >= 0.9
    assert score("agent.gamma=0.0", steps=16000, base=PARALLEL) < 0.6


def treasure_share(*overrides, seed=1):
    """How many of the last 50 dives found the treasure, where no action is ever random."""
    _, _, scores = train(
        "training.num_envs=1", "training.warmup_random_steps=1", "preset.epsilon_start=0.0", "preset.epsilon_end=0.0",
        "agent.update_frequency=2", f"seed={seed}", *overrides, steps=2500, env=lambda: DeepSea(4),
        name="retrograd/DeepSea-v0",
    )  # fmt: skip
    return float(np.mean(np.asarray(scores[-50:]) > 0.9))


@pytest.mark.nightly
def test_noise_explores_where_greed_does_not():
    """Noise found it with all of seeds 1 to 5; greed with 2 and 5, by the luck of its first weights, not with 1, 3, 4.

    This is a small sea: one cell deeper, noise found it with one seed of three in 3,500 steps, and greed with none.
    """
    assert treasure_share("agent.noisy=true") >= 0.8
    assert treasure_share() <= 0.1
