"""Blind Cliffwalk (Schaul et al. 2016, section 3.1): one transition in 510 pays, and priorities find it.

All 2^n walks of n states are in the replay; one wrong step ends a walk with nothing. Updates until the mean squared
error of Q is below 0.001, measured over 5 seeds: prioritized 433 to 504, uniform 3,590 to 4,857; with fourteen states
prioritized 17,229 to 17,758, uniform with the first seed not in 86,145. Two more states take three times the updates.
"""

import numpy as np
import pytest
import torch
from torch import nn

from retrograd.agents.dqn import DQNLoss
from retrograd.agents.value import ValueAgent
from retrograd.core.schedules import Constant
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.exploration import EpsilonGreedy
from retrograd.networks.heads import LinearHead
from retrograd.networks.q_network import QNetwork
from retrograd.replay import NStep, Prioritized, RawStorage, Replay


def walks(replay, states):
    """Every walk once: 2^n sequences of n choices, each cut at its first wrong step."""
    rng = np.random.default_rng(0)
    eye = np.eye(states, dtype=np.float32)
    for number in rng.permutation(2**states):
        for state in range(states):
            right = bool(number >> state & 1)
            won = right and state == states - 1
            ended = np.array([won or not right])
            after = eye[min(state + 1, states - 1)]
            replay.add(Step(eye[state][None], np.array([int(right)]), np.array([float(won)], np.float32), ended,
                            np.array([False]), ended, after[None]))  # fmt: skip
            if ended[0]:
                break


def exact_values(states):
    """Right from state s is worth γ^(n-1-s), wrong nothing; γ = 1 - 1/n."""
    return torch.stack([torch.zeros(states), (1 - 1 / states) ** torch.arange(states - 1, -1, -1.0)], dim=1)


def updates_needed(sampler, seed, limit_updates, states=8):
    spec = EnvSpec("cliff", ArraySpec((states,), np.dtype(np.float32)), DiscreteActions(2))
    storage = RawStorage(spec, 2 ** (states + 4), 1)
    replay = Replay(storage, sampler, NStep(1, 1 - 1 / states), np.random.default_rng(seed))
    walks(replay, states)
    torch.manual_seed(seed)
    network = QNetwork(nn.Identity(), LinearHead(states, 2))
    nn.init.normal_(network.head.linear.weight, std=0.1)
    nn.init.zeros_(network.head.linear.bias).requires_grad_(False)
    explorer = EpsilonGreedy(Constant(0.0), 2, np.random.default_rng(seed))
    agent = ValueAgent(
        network, DQNLoss(huber=False), torch.optim.SGD(network.parameters(), lr=0.25), explorer=explorer,
        eval_explorer=explorer, target_update_updates=1, max_grad_norm=None, loss_reduction="sum",
    )  # fmt: skip
    truth = exact_values(states)
    for update in range(1, limit_updates):
        batch = replay.sample(2, step=update)
        replay.update(batch.index, agent.update(batch, step=update).priority)
        if (network.head.linear.weight.detach().T - truth).square().mean() < 1e-3:
            return update
    return limit_updates


def prioritized(alpha):
    return Prioritized(alpha=alpha, beta_start=0.0, beta_end=0.0, priority_eps=1e-4)


def test_priorities_need_at_most_a_fifth_of_the_updates():
    """α = 0 samples uniformly through the same tree: the mutant, and the paper's comparison."""
    needed = updates_needed(prioritized(1.0), 0, 700)
    assert needed < 600
    assert updates_needed(prioritized(0.0), 0, 5 * needed) == 5 * needed


@pytest.mark.nightly
def test_they_do_with_fourteen_states_too():
    """One transition in 32,766 pays. Two minutes."""
    needed = updates_needed(prioritized(1.0), 0, 25_000, states=14)
    assert needed < 20_000
    assert updates_needed(prioritized(0.0), 0, 5 * needed, states=14) == 5 * needed
