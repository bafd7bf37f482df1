"""The chain's exact values, found by every loss; three mutants that do not find them.

Largest |Q - Q*| after 1,200 updates, measured over 5 seeds (mutants 3): below 0.001, for IQN below 0.09; a bootstrap
through terminals at least 1.2, targets never copied at least 0.4, γ² for γ at least 0.22
(mutants of DQN, C51 and QR-DQN). The bound was set after IQN's worst seed.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from retrograd.agents.c51 import C51Loss
from retrograd.agents.dqn import DQNLoss
from retrograd.agents.iqn import IQNLoss
from retrograd.agents.qr_dqn import QRDQNLoss
from retrograd.agents.value import ValueAgent
from retrograd.core.schedules import Constant
from retrograd.core.types import Transitions
from retrograd.exploration import EpsilonGreedy
from retrograd.networks.heads import Categorical, CosineEmbedding, LinearHead, Quantiles
from retrograd.networks.layers import NoiseSource
from retrograd.networks.q_network import ImplicitQNetwork, QNetwork

STATES, GAMMA, BOUND = 6, 0.9, 0.1


def all_transitions(gamma=GAMMA):
    """Both actions of the four inner states; the left end pays 0.01, the right end 1, both end the episode."""
    state = torch.arange(1, STATES - 1).repeat_interleave(2)  # [B]
    action = torch.tensor([0, 1]).repeat(STATES - 2)
    after = state + 2 * action - 1
    ended = (after == 0) | (after == STATES - 1)
    reward = torch.where(after == STATES - 1, 1.0, torch.where(after == 0, 0.01, 0.0))
    one_hot = torch.eye(STATES)
    return Transitions(one_hot[state], action, reward, torch.where(ended, 0.0, gamma), one_hot[after],
                       torch.ones(len(state)), np.arange(len(state)))  # fmt: skip


def exact_values():
    q = torch.zeros(STATES, 2)
    batch = all_transitions()
    state, after = batch.obs.argmax(1), batch.next_obs.argmax(1)
    for _ in range(100):
        q[state, batch.action] = batch.reward + batch.discount * q[after].amax(1)
    return q[1:-1]


def linear_network(distribution=None):
    head = LinearHead(STATES, 2, distribution.atoms if distribution else 1)
    return QNetwork(nn.Identity(), head, distribution)


def implicit_network():
    return ImplicitQNetwork(
        nn.Identity(), CosineEmbedding(8, STATES), LinearHead(STATES, 2, hidden=32), NoiseSource(0), 16
    )


LOSSES = {
    "dqn": (linear_network, DQNLoss(), 0.03),
    "squared": (linear_network, DQNLoss(huber=False), 0.03),
    "double": (linear_network, DQNLoss(double=True), 0.03),
    "c51": (lambda: linear_network(Categorical(-1.0, 2.0, 31)), C51Loss(double=True), 0.05),
    "qr_dqn": (lambda: linear_network(Quantiles(5)), QRDQNLoss(), 0.03),
    "iqn": (implicit_network, IQNLoss(8, 8), 0.01),
}


def largest_error(name, *, seed=0, updates=1200, change=lambda batch: batch, target_update_updates=20):
    make, loss, lr = LOSSES[name]
    torch.manual_seed(seed)
    network = make()
    explorer = EpsilonGreedy(Constant(0.0), 2, np.random.default_rng(seed))
    agent = ValueAgent(
        network, loss, torch.optim.Adam(network.parameters(), lr=lr), explorer=explorer, eval_explorer=explorer,
        target_update_updates=target_update_updates, max_grad_norm=None, loss_reduction="mean",
    )  # fmt: skip
    batch = change(all_transitions())
    for update in range(updates):
        agent.optimizer.param_groups[0]["lr"] = lr * min(1.0, 2 * (1 - update / updates)) + 1e-5
        agent.update(batch, step=update)
    with torch.no_grad():
        q = network.get_q_values(torch.eye(STATES)[1:-1])
    return float((q - exact_values()).abs().max())


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_finds_the_exact_values(name):
    assert largest_error(name) < BOUND


def bootstrap_through_terminals(batch):
    return replace(batch, discount=torch.full_like(batch.discount, GAMMA))


def discount_twice(batch):
    return replace(batch, discount=batch.discount**2)


@pytest.mark.parametrize("name", ["dqn", "c51", "qr_dqn"])
@pytest.mark.parametrize("mutant", [bootstrap_through_terminals, discount_twice])
def test_a_wrong_discount_does_not(name, mutant):
    assert largest_error(name, change=mutant) > 2 * BOUND


@pytest.mark.parametrize("name", ["dqn", "c51", "qr_dqn"])
def test_a_target_that_is_never_copied_does_not(name):
    assert largest_error(name, target_update_updates=10**9) > 2 * BOUND
