"""The Q losses against rlax's numbers, through networks that are tables."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from retrograd.agents.c51 import C51Loss
from retrograd.agents.dqn import DQNLoss
from retrograd.agents.iqn import IQNLoss
from retrograd.agents.munchausen import Munchausen
from retrograd.agents.qr_dqn import QRDQNLoss
from retrograd.agents.value import ValueAgent
from retrograd.core.distributional import quantile_huber, quantile_midpoints
from retrograd.core.schedules import Constant
from retrograd.core.types import Transitions
from retrograd.exploration import EpsilonGreedy
from retrograd.networks.heads import Categorical, CosineEmbedding, LinearHead, Quantiles
from retrograd.networks.layers import NoiseSource
from retrograd.networks.q_network import ImplicitQNetwork, QNetwork

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "value.json").read_text())
CONTRIB = json.loads((Path(__file__).parents[1] / "golden" / "qr_dqn_sb3.json").read_text())


class Table(nn.Module):
    """The observation is a row's number."""

    def __init__(self, *rows: torch.Tensor) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.cat(rows))

    def forward(self, obs):
        return self.rows[obs]


def tensors(name):
    return {key: torch.tensor(value) if isinstance(value, int) else torch.tensor(value, dtype=torch.float64)
            for key, value in GOLDEN[name].items()}  # fmt: skip


def table_network(now, after, distribution=None):
    """Rows 0 … B-1 are the states, the rest their successors."""
    return QNetwork(nn.Identity(), Table(now, after), distribution)


def transitions(case):
    size = len(case["reward"])
    return Transitions(
        obs=torch.arange(size),
        action=case["action"].long(),
        reward=case["reward"],
        discount=case["discount"],
        next_obs=torch.arange(size, 2 * size),
        weight=torch.ones(size, dtype=torch.float64),
        index=np.arange(size),
    )


@pytest.mark.parametrize(("double", "key"), [(False, "q_learning"), (True, "double_q_learning")])
def test_dqn_errors_equal_rlax(double, key):
    case = tensors("scalar")
    online, target = table_network(case["q"], case["next_online"]), table_network(case["q"], case["next_q"])
    out = DQNLoss(double=double, huber=False)(online, target, transitions(case))
    assert torch.allclose(out.priority, case[key].abs(), atol=1e-6)
    assert torch.allclose(out.per_sample, 0.5 * case[key] ** 2, atol=1e-6)


def test_choosing_with_the_target_network_is_not_double():
    """With the target's own values to choose by, double gives plain DQN's numbers, and those are others."""
    case = tensors("scalar")
    target = table_network(case["q"], case["next_q"])
    out = DQNLoss(double=True, huber=False)(target, target, transitions(case))
    assert torch.allclose(out.priority, case["q_learning"].abs(), atol=1e-6)
    assert not torch.allclose(out.priority, case["double_q_learning"].abs(), atol=1e-3)


@pytest.mark.parametrize(("double", "key"), [(False, "single"), (True, "double")])
def test_c51_loss_equals_rlax(double, key):
    case = tensors("categorical")
    distribution = Categorical(-2.0, 2.0, 5).double()
    online = table_network(case["logits"], case["next_online"], distribution)
    target = table_network(case["logits"], case["next_logits"], distribution)
    out = C51Loss(double=double)(online, target, transitions(case))
    assert torch.allclose(out.per_sample, case[key], atol=1e-6)


def test_c51_priority_is_zero_where_the_prediction_is_right():
    distribution = Categorical(-2.0, 2.0, 5).double()
    logits = torch.log_softmax(torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64), 2)
    batch = Transitions(torch.arange(3), torch.zeros(3).long(), torch.zeros(3).double(), torch.ones(3).double(),
                        torch.arange(3, 6), torch.ones(3), np.arange(3))  # fmt: skip
    network = table_network(logits, logits, distribution)
    best = network.expect(logits).argmax(1)
    batch = Transitions(batch.obs, best, batch.reward, batch.discount, batch.next_obs, batch.weight, batch.index)
    out = C51Loss()(network, network, batch)
    assert torch.allclose(out.priority, torch.zeros(3).double(), atol=1e-6)
    assert (C51Loss(priority="cross_entropy")(network, network, batch).priority > 0.1).all()


def test_qr_dqn_loss_equals_the_golden_quantile_loss_at_midpoints():
    case = tensors("quantile_huber")
    after = case["next_places"][:, :, :5]
    online = table_network(case["places"], after, Quantiles(5).double())
    out = QRDQNLoss(kappa=1.0)(online, online, transitions(case))
    rows, best = torch.arange(6), after.mean(2).argmax(1)
    goal = case["reward"][:, None] + case["discount"][:, None] * after[rows, best]
    for row in range(6):  # the definition, number by number
        total = 0.0
        for i, tau in enumerate(quantile_midpoints(5)):
            for j in range(5):
                u = float(goal[row, j] - case["places"][row, case["action"][row].long(), i])
                huber = 0.5 * u * u if abs(u) <= 1 else abs(u) - 0.5
                total += abs(float(tau) - (u < 0)) * huber / 5
        assert out.per_sample[row].item() == pytest.approx(total, abs=1e-6)


@pytest.mark.parametrize("case", CONTRIB["losses"])
def test_quantile_huber_loss_and_gradient_equal_sb3_contrib(case):
    predicted = torch.tensor(case["predicted"], dtype=torch.float64, requires_grad=True)
    goal = torch.tensor(case["goal"], dtype=torch.float64)
    loss = quantile_huber(predicted, quantile_midpoints(predicted.shape[1]).double(), goal, 1.0)
    loss.sum().backward()
    assert np.allclose(loss.tolist(), case["loss"], atol=1e-6)
    assert np.allclose(predicted.grad.tolist(), case["gradient"], atol=1e-6)


def test_five_updates_of_qr_dqn_equal_sb3_contrib():
    """From the same weights, through the whole agent: network, loss, reduction and optimizer."""
    case = CONTRIB["updates"]
    quantiles, actions = 7, 3

    def tensors_of(weights):
        first, bias, last, last_bias = (torch.tensor(values) for values in weights)
        # theirs has an action's quantiles apart, ours side by side
        last = last.view(quantiles, actions, -1).transpose(0, 1).flatten(0, 1)
        return [first, bias, last, last_bias.view(quantiles, actions).T.flatten()]

    trunk = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
    network = QNetwork(trunk, LinearHead(8, actions, quantiles), Quantiles(quantiles))
    agent = agent_of(
        network, QRDQNLoss(), torch.optim.Adam(network.parameters(), lr=case["lr"], eps=case["adam_eps"]), "mean"
    )
    with torch.no_grad():
        for own, given in zip(network.parameters(), tensors_of(case["before"]), strict=True):
            own.copy_(given)
        for own, given in zip(agent.target.parameters(), tensors_of(case["target"]), strict=True):
            own.copy_(given)
    for batch in case["batches"]:
        values = {key: torch.tensor(value, dtype=torch.float32) for key, value in batch.items()}
        discount = case["gamma"] * (1 - values["ended"])
        agent.update(
            Transitions(values["obs"], torch.tensor(batch["action"]), values["reward"], discount, values["next_obs"],
                        torch.ones(6), np.arange(6)), step=1,
        )  # fmt: skip
    for own, given in zip(network.parameters(), tensors_of(case["after"]), strict=True):
        assert torch.allclose(own, given, atol=1e-6)


def agent_of(network, loss, optimizer, reduction):
    explorer = EpsilonGreedy(Constant(0.0), 4, np.random.default_rng(0))
    return ValueAgent(
        network, loss, optimizer, explorer=explorer, eval_explorer=explorer, target_update_updates=100,
        max_grad_norm=None, loss_reduction=reduction,
    )  # fmt: skip


class Prepared(ImplicitQNetwork):
    """Gives prepared samples in the order in which they are asked for."""

    def __init__(self, *samples):
        super().__init__(nn.Identity(), CosineEmbedding(2, 2), LinearHead(2, 4), NoiseSource(0), 3)
        self.samples = list(samples)

    def sample(self, features, count, *, redraw=True):
        places, fractions = self.samples.pop(0)
        assert places.shape[2] == count
        return places, fractions


def test_iqn_loss_equals_rlax():
    """Five fractions of the prediction, seven of the goal, three of the choice."""
    case = tensors("quantile_huber")
    online = Prepared((case["places"], case["fractions"]))
    target = Prepared((case["next_places"], None), (case["selector"], None))
    out = IQNLoss(samples=5, target_samples=7)(online, target, transitions(case))
    assert torch.allclose(out.per_sample, case["loss"], atol=1e-6)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_importance_weights_reach_the_gradient_of_iqn(reduction):
    def gradient(weight):
        torch.manual_seed(0)
        network = ImplicitQNetwork(
            nn.Embedding(12, 6), CosineEmbedding(5, 6), LinearHead(6, 4, hidden=7), NoiseSource(3), 8
        )
        agent = agent_of(network, IQNLoss(4, 3), torch.optim.SGD(network.parameters(), lr=1.0), reduction)
        before = network.encoder.weight.detach().clone()
        case = {key: value.float() for key, value in tensors("scalar").items()}
        update = agent.update(replace(transitions(case), weight=weight), step=1)
        return before - network.encoder.weight.detach(), update.priority

    weight = torch.tensor([1.0, 0.5, 0.25, 1.0, 0.0, 0.75])
    once, priority = gradient(weight)
    twice, same_priority = gradient(2 * weight)
    assert torch.allclose(2 * once, twice, atol=1e-6)
    assert once[4].abs().max() == 0
    assert once[0].abs().max() > 0
    assert torch.equal(priority, same_priority)


def implicit_network(seed=0, policy_samples=8, actions=3):
    torch.manual_seed(seed)
    head = LinearHead(6, actions, hidden=7)
    return ImplicitQNetwork(nn.Flatten(), CosineEmbedding(5, 6), head, NoiseSource(seed), policy_samples)


def test_iqn_with_one_fraction_equals_a_hand_value():
    online, target = implicit_network(1, policy_samples=1), implicit_network(2, policy_samples=1)
    batch = Transitions(torch.randn(1, 6), torch.tensor([1]), torch.tensor([0.7]), torch.tensor([0.9]),
                        torch.randn(1, 6), torch.ones(1), np.arange(1))  # fmt: skip
    tau = NoiseSource(1).uniform(1, 1)
    stream = NoiseSource(2)
    after, deciding = stream.uniform(1, 1), stream.uniform(1, 1)
    out = IQNLoss(samples=1, target_samples=1)(online, target, batch)
    best = target.decode(target.encoder(batch.next_obs), deciding)[0, :, 0].argmax()
    goal = 0.7 + 0.9 * target.decode(target.encoder(batch.next_obs), after)[0, best, 0]
    error = (goal - online.decode(online.encoder(batch.obs), tau)[0, 1, 0]).item()
    huber = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
    assert out.per_sample.item() == pytest.approx(abs(float(tau) - (error < 0)) * huber, rel=1e-5)


def test_permuting_a_batch_permutes_the_implicit_network():
    """The wrong tiling of fractions would mix rows."""
    network, features = implicit_network(), torch.randn(5, 6, generator=torch.Generator().manual_seed(4))
    fractions = torch.rand(5, 4, generator=torch.Generator().manual_seed(5))
    order = torch.tensor([3, 0, 4, 1, 2])
    whole, permuted = network.decode(features, fractions), network.decode(features[order], fractions[order])
    assert whole.shape == (5, 3, 4)
    assert torch.allclose(whole[order], permuted, atol=1e-6)


MUNCHAUSEN = Munchausen(alpha=0.9, tau=0.03, clip=-1.0)


def test_munchausen_goal_equals_the_papers_formula():
    case = tensors("munchausen")
    target = table_network(case["q"], case["next_q"])
    online = table_network(torch.zeros_like(case["q"]), torch.zeros_like(case["q"]))
    out = DQNLoss(huber=False, munchausen=MUNCHAUSEN)(online, target, transitions(case))
    assert torch.allclose(out.priority, case["goal"].abs(), atol=1e-6)


def test_munchausen_widens_the_gap_between_actions():
    """Without the clip the gap is 1 / (1 - α) times that of the rewards: here ten times."""
    unclipped = Munchausen(alpha=0.9, tau=0.03, clip=-1e9)
    q = torch.zeros(2, 2, dtype=torch.float64)  # two rows of one state: one for each action
    reward = torch.tensor([0.02, 0.0], dtype=torch.float64)
    for _ in range(400):
        learned = reward + unclipped.bonus(q, torch.tensor([0, 1]))
        q = learned.expand(2, 2)
    assert (q[0, 0] - q[0, 1]).item() == pytest.approx(0.2, rel=0.01)


def test_munchausen_is_finite_for_values_of_any_size():
    q = torch.tensor([[1e3, -1e3, 0.0], [-1e3, 1e3, 1e3]])
    policy, log_policy = MUNCHAUSEN.soften(q)
    assert torch.isfinite(log_policy).all()
    assert torch.isfinite(MUNCHAUSEN.soft_value(q, q.unsqueeze(2))).all()
    assert torch.allclose(policy.sum(1), torch.ones(2))
    assert MUNCHAUSEN.bonus(q, torch.tensor([1, 0])).tolist() == pytest.approx([-0.9, -0.9])


@pytest.mark.parametrize("kind", ["scalar", "c51", "quantile"])
def test_without_bonus_and_temperature_munchausen_is_plain(kind):
    plain, cold = None, Munchausen(alpha=0.0, tau=1e-8, clip=-1.0)
    generator = torch.Generator().manual_seed(6)
    shape = (6, 4) if kind == "scalar" else (6, 4, 5)
    now, after = torch.randn(shape, generator=generator).double(), torch.randn(shape, generator=generator).double()
    distribution = {"scalar": None, "c51": Categorical(-2.0, 2.0, 5), "quantile": Quantiles(5)}[kind]
    network = table_network(now, after, distribution.double() if distribution else None)
    loss = {"scalar": DQNLoss, "c51": C51Loss, "quantile": QRDQNLoss}[kind]
    batch = transitions(tensors("scalar"))
    first = loss(munchausen=plain)(network, network, batch).per_sample
    second = loss(munchausen=cold)(network, network, batch).per_sample
    assert torch.allclose(first, second, atol=1e-5)


def test_munchausen_may_ask_the_online_network():
    case = tensors("munchausen")
    target, online = table_network(case["q"], case["next_q"]), table_network(case["q"] * 0, case["next_q"])
    own = Munchausen(0.9, 0.03, -1.0, policy="online")
    out = DQNLoss(huber=False, munchausen=own)(online, target, transitions(case))
    shift = own.bonus(case["q"] * 0, case["action"].long()) - own.bonus(case["q"], case["action"].long())
    assert torch.allclose(out.priority, (case["goal"] + shift).abs(), atol=1e-6)


def losses():
    generator = torch.Generator().manual_seed(7)

    def network(*tail, distribution=None):
        now, after = torch.randn(2, 6, 4, *tail, generator=generator)
        return table_network(now, after, distribution)

    yield "dqn", network(), DQNLoss()
    yield "squared", network(), DQNLoss(huber=False)
    yield "double", network(), DQNLoss(double=True)
    yield "c51", network(5, distribution=Categorical(-2.0, 2.0, 5)), C51Loss()
    yield "qr_dqn", network(5, distribution=Quantiles(5)), QRDQNLoss()
    yield "munchausen", network(), DQNLoss(munchausen=MUNCHAUSEN)


@pytest.mark.parametrize(("name", "network", "loss"), list(losses()))
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_importance_weights_reach_the_gradient_of_every_loss(name, network, loss, reduction):
    """A sample of weight zero leaves no trace; doubling all weights doubles the gradient; priorities stay."""

    def gradient(weight):
        own = copy.deepcopy(network)
        agent = ValueAgent(
            own, loss, torch.optim.SGD(own.parameters(), lr=1.0),
            explorer=EpsilonGreedy(Constant(0.0), 4, np.random.default_rng(0)),
            eval_explorer=EpsilonGreedy(Constant(0.0), 4, np.random.default_rng(0)),
            target_update_updates=100, max_grad_norm=None, loss_reduction=reduction,
        )  # fmt: skip
        case = {key: value.float() for key, value in tensors("scalar").items()}
        batch = transitions(case)
        batch = Transitions(batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs, weight, batch.index)
        update = agent.update(batch, step=1)
        return network.head.rows.detach() - own.head.rows.detach(), update.priority

    weight = torch.tensor([1.0, 0.5, 0.25, 1.0, 0.0, 0.75])
    once, priority = gradient(weight)
    twice, same_priority = gradient(2 * weight)
    assert torch.allclose(2 * once, twice, atol=1e-6)
    assert once[4].abs().max() == 0
    assert once[0].abs().max() > 0
    assert torch.equal(priority, same_priority)
