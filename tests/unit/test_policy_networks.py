"""Actors, critics, their distributions and how their weights begin."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec, ContinuousActions, DiscreteActions
from retrograd.networks.cores import RecurrentCore
from retrograd.networks.distributions import CategoricalActions, GaussianActions
from retrograd.networks.optimizers import TensorFlowRMSprop
from retrograd.networks.policy import make_actor_critic, make_recurrent_actor_critic

VECTOR = ArraySpec((5,), np.dtype(np.float32))
IMAGE = ArraySpec((4, 84, 84), np.dtype(np.uint8), 0.0, 255.0)
DISCRETE = DiscreteActions(3)
BOX = ContinuousActions(np.full(2, -1.0, np.float32), np.full(2, 1.0, np.float32))


def test_categorical_equals_torch() -> None:
    logits = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    action = torch.tensor([0, 1, 2, 3, 0, 1])
    ours, theirs = CategoricalActions.from_logits(logits), torch.distributions.Categorical(logits=logits)
    assert torch.allclose(ours.log_prob(action), theirs.log_prob(action), atol=1e-6)
    assert torch.allclose(ours.entropy(), theirs.entropy(), atol=1e-6)
    assert np.array_equal(ours.mode(), logits.argmax(1).numpy())


def test_gaussian_equals_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, log_std = torch.randn(6, 2, generator=generator), torch.tensor([-0.5, 0.3])
    action = torch.randn(6, 2, generator=generator)
    ours = GaussianActions(mean, log_std)
    theirs = torch.distributions.Independent(torch.distributions.Normal(mean, log_std.exp()), 1)
    assert torch.allclose(ours.log_prob(action), theirs.log_prob(action), atol=1e-6)
    assert torch.allclose(ours.entropy(), theirs.entropy(), atol=1e-6)


def test_samples_follow_the_probabilities() -> None:
    probs = torch.tensor([0.0, 0.1, 0.6, 0.3])
    policy = CategoricalActions(probs.log().expand(20_000, 4))
    drawn = policy.sample(np.random.default_rng(0))
    share = np.bincount(drawn, minlength=4) / len(drawn)
    assert share == pytest.approx(probs.numpy(), abs=0.012)  # more than three standard errors
    assert share[0] == 0.0


def test_gaussian_samples_have_the_mean_and_the_deviation() -> None:
    policy = GaussianActions(torch.tensor([[1.0, -2.0]]).expand(20_000, 2), torch.tensor([0.0, -1.0]))
    drawn = policy.sample(np.random.default_rng(0))
    assert drawn.dtype == np.float32
    assert drawn.mean(0) == pytest.approx([1.0, -2.0], abs=0.03)
    assert drawn.std(0) == pytest.approx([1.0, math.exp(-1)], abs=0.03)


@pytest.mark.parametrize("spec", [VECTOR, IMAGE], ids=["vector", "image"])
@pytest.mark.parametrize("actions", [DISCRETE, BOX], ids=["discrete", "continuous"])
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "separate"])
def test_shapes_and_gradients(spec: ArraySpec, actions: object, shared: bool) -> None:
    """REQ NET-3. A value's gradient reaches the actor's encoder only where it is shared."""
    network = make_actor_critic(spec, actions, shared=shared, channels_last=True)  # type: ignore[arg-type]
    obs = torch.zeros((3, *spec.shape), dtype=torch.uint8 if spec is IMAGE else torch.float32) + 1
    policy, value = network(obs)
    assert value.shape == (3,)
    assert torch.allclose(value, network.value(obs))
    action = network.actor.get_action(obs, np.random.default_rng(0))
    assert action.shape == ((3,) if actions is DISCRETE else (3, 2))
    assert policy.log_prob(torch.from_numpy(action)).shape == policy.entropy().shape == (3,)
    value.sum().backward()
    assert (next(network.actor.encoder.parameters()).grad is not None) == shared


@pytest.mark.parametrize("channels_last", [True, False])
def test_first_weights_are_orthogonal(channels_last: bool) -> None:
    """Gain √2 in the encoder, 0.01 in the policy's head, 1 in the value's; biases are zero."""
    network = make_actor_critic(IMAGE, DISCRETE, shared=True, channels_last=channels_last)
    convolution = network.actor.encoder.convolutions[0].weight.flatten(1)  # type: ignore[union-attr, index]
    for weight, gain in (
        (convolution, math.sqrt(2)),
        (network.actor.head.linear.weight, 0.01),
        (network.critic.head.weight, 1.0),
    ):
        assert torch.allclose(weight @ weight.T, gain**2 * torch.eye(len(weight)), atol=1e-5)
    assert all(not bias.any() for name, bias in network.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_unrolled_runs_equal_step_by_step(cell: str) -> None:
    """REQ NET-4: padded runs of different lengths, from their own states."""
    torch.manual_seed(0)
    network = make_recurrent_actor_critic(VECTOR, DISCRETE, cell=cell, hidden_size=8, channels_last=True)
    lengths = torch.tensor([4, 2, 3])
    obs = torch.randn(4, 3, 5)
    mask = torch.arange(4)[:, None] < lengths
    state = {name: torch.randn(3, 8) for name in network.core.names}
    policy, value = network.unroll(obs[mask], mask, state)
    expected = torch.full((4, 3), math.nan)
    probabilities = torch.full((4, 3, 3), math.nan)
    for run, length in enumerate(lengths):
        memory = {name: tensor[run : run + 1] for name, tensor in state.items()}
        for t in range(int(length)):
            one, expected[t, run], memory = network(obs[t, run : run + 1], memory)
            probabilities[t, run] = one.log_probs[0]
    assert torch.allclose(value, expected[mask], atol=1e-6)
    assert torch.allclose(policy.log_probs, probabilities[mask], atol=1e-6)  # type: ignore[attr-defined]


def test_bad_memories_are_named() -> None:
    with pytest.raises(UsageError, match=r"'lstn'.*Did you mean 'lstm'"):
        RecurrentCore(4, 8, cell="lstn")
    with pytest.raises(UsageError, match="hidden_size is 0"):
        RecurrentCore(4, 0, cell="gru")


def test_tensorflow_rmsprop_by_hand() -> None:
    """eps inside the root, and a square that begins at 1: torch's own would go 10 times as far at first."""
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = TensorFlowRMSprop([weight], lr=0.1, decay=0.99, eps=1e-5)
    square, expected = 1.0, 1.0
    for gradient in (0.5, -2.0, 0.1):
        weight.grad = torch.tensor([gradient])
        optimizer.step()
        square = 0.99 * square + 0.01 * gradient**2
        expected -= 0.1 * gradient / math.sqrt(square + 1e-5)
        assert weight.item() == pytest.approx(expected, abs=1e-6)
