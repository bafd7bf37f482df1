"""Half precision: which layers, which processors, and copies of weights that are never older than the weights."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from retrograd import build
from retrograd.build import hardware as switches
from retrograd.build.hardware import precision, with_precision
from retrograd.config import ConfigManager
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec
from retrograd.networks import products
from retrograd.networks.heads import Categorical
from retrograd.networks.layers import NoiseSource, NoisyLinear
from retrograd.networks.optimizers import TensorFlowRMSprop, make_optimizer
from retrograd.networks.precision import set_precision
from retrograd.networks.products import Linear, Multiplying
from retrograd.networks.q_network import QNetwork, make_q_network

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
SCREEN = ArraySpec((4, 84, 84), np.dtype(np.uint8))
BOARD = ArraySpec((4, 10, 10), np.dtype(np.bool_))
NATIVE = "hardware.autocast=native"
OPTIMIZERS = ("adam", "adam, not fused", "deepmind_rmsprop", "torch_rmsprop", "tensorflow_rmsprop")


def compose(*words: str):
    return ConfigManager(None).compose(list(words))


def screens(rows: int = 3) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(256, size=(rows, 4, 84, 84), dtype=np.uint8))


def rainbow(spec: ArraySpec = SCREEN) -> QNetwork:
    torch.manual_seed(0)
    return make_q_network(
        spec,
        6,
        network="dueling",
        channels_last=True,
        distribution=Categorical(-10, 10, 51),
        noisy_sigma=0.5,
        noise=NoiseSource(1),
    )


def optimizer_of(name: str, network: torch.nn.Module) -> torch.optim.Optimizer:
    if name == "tensorflow_rmsprop":
        return TensorFlowRMSprop(network.parameters(), 0.01, 0.99, 1e-5)
    numbers = {"lr": 0.01, "adam_eps": 1e-5, "rmsprop_decay": 0.95, "rmsprop_momentum": 0.95, "rmsprop_eps": 0.01}
    kind, *plain = name.split(", ")
    return make_optimizer(kind, network, **numbers, fused=not plain)


def test_hidden_layers_after_pictures_are_rounded_and_values_are_not():
    network = rainbow()
    set_precision(network, "bfloat16", CPU)
    layers = {name: layer for name, layer in network.named_modules() if isinstance(layer, NoisyLinear)}
    rounded = {name for name, layer in layers.items() if layer.compute_dtype is torch.bfloat16}
    assert rounded == {"head.value.0", "head.advantage.0"}
    assert set(layers) - rounded == {"head.value.2", "head.advantage.2"}
    output = network(screens())
    assert output.dtype == torch.float32
    output.sum().backward()
    assert all(param.grad is not None and param.grad.dtype == torch.float32 for param in network.parameters())
    set_precision(network, None, CPU)
    assert all(layer.compute_dtype is None for layer in layers.values())


def test_boards_and_vectors_stay_in_float32():
    network = rainbow(BOARD)
    set_precision(network, "bfloat16", CPU)
    assert not any(layer.compute_dtype for layer in network.modules() if isinstance(layer, Multiplying))


def test_a_rounded_head_is_close_to_the_exact_one():
    network = rainbow().eval()
    exact = network.get_q_values(screens())
    set_precision(network, "bfloat16", CPU)
    rounded = network.get_q_values(screens())
    assert not torch.equal(rounded, exact)
    torch.testing.assert_close(rounded, exact, rtol=0, atol=0.05)  # of a support of 20


def test_kept_copies_give_the_bits_that_autocast_gives(monkeypatch):
    def learned() -> list[torch.Tensor]:
        network = rainbow()
        set_precision(network, "bfloat16", CPU)
        output = network(screens())
        output.square().sum().backward()
        return [output.detach(), *(param.grad for param in network.parameters())]

    kept = learned()
    monkeypatch.setattr(products, "rounded", lambda weight: weight)
    assert all(torch.equal(one, other) for one, other in zip(kept, learned(), strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_step_of_any_optimizer_makes_the_copies_anew(name):
    """A stale copy would act on weights of long ago; some optimizers change weights without telling torch."""
    network = make_q_network(SCREEN, 4, network="nature", channels_last=True)
    set_precision(network, "bfloat16", CPU)
    optimizer, before = optimizer_of(name, network), network.get_q_values(screens())
    for _ in range(2):
        optimizer.zero_grad()
        network(screens()).square().sum().backward()
        optimizer.step()
        after = network.get_q_values(screens())
        assert not torch.equal(after, before)
        assert torch.equal(after, copy.deepcopy(network).get_q_values(screens()))  # a copy that keeps nothing yet
        before = after


@pytest.mark.parametrize("name", ["dqn", "modern", "rainbow", "pqn", "ppo", "a2c", "recurrent_ppo", "impala"])
def test_the_optimizer_of_every_agent_makes_the_copies_anew(name):
    spec = EnvSpec("screen", SCREEN, DiscreteActions(3), frame_stack=4, frames_per_step=4)
    agent = build.Builder(compose("env=pong", f"agent={name}", "hardware.device=cpu")).agent(spec)
    optimizer = getattr(agent, "optimizer", None) or agent.learner.optimizer
    params = [param for group in optimizer.param_groups for param in group["params"]]
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        for param in params:
            products.rounded(param)
            param.grad = torch.ones_like(param)
        optimizer.step()
        large = [param for param in params if param.numel() >= products.FEWEST_WEIGHTS]
        assert large
        assert all(torch.equal(products.rounded(param), param.bfloat16()) for param in large)


def test_weights_that_are_copied_or_loaded_make_the_copies_anew():
    online, target = (make_q_network(SCREEN, 4, network="nature", channels_last=True) for _ in range(2))
    for network in (online, target):
        set_precision(network, "bfloat16", CPU)
        network.requires_grad_(network is online)
    assert not torch.equal(target.get_q_values(screens()), online.get_q_values(screens()))
    with torch.no_grad():
        for old, new in zip(target.state_dict().values(), online.state_dict().values(), strict=True):
            old.copy_(new)
    assert torch.equal(target.get_q_values(screens()), online.get_q_values(screens()))
    online.load_state_dict({name: tensor * 2 for name, tensor in online.state_dict().items()})
    assert torch.equal(online.get_q_values(screens()), copy.deepcopy(online).get_q_values(screens()))


def test_a_weight_is_rounded_once_for_many_products(monkeypatch):
    layer = Linear(3136, 512)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        first = products.rounded(layer.weight)
        assert first.dtype == torch.bfloat16
        assert products.rounded(layer.weight) is first
        layer.weight.add_(1)
        assert products.rounded(layer.weight) is not first
    assert products.rounded(layer.weight) is layer.weight  # float32 all round
    assert "rounded" not in layer.state_dict()


@pytest.mark.parametrize(
    ("words", "device", "able", "expected"),
    [
        ([NATIVE], CPU, True, "bfloat16"),
        ([NATIVE], CPU, False, None),
        ([NATIVE], CPU, None, None),  # nobody can tell
        ([NATIVE], CUDA, True, None),
        ([NATIVE, "agent=a3c"], CPU, True, None),
        ([], CPU, True, None),
        (["hardware.autocast=bfloat16"], CPU, False, "bfloat16"),
    ],
)
def test_native_is_what_the_processor_computes_in(words, device, able, expected, monkeypatch):
    monkeypatch.setattr(switches, "has_bfloat16", lambda: able)
    config = compose("env=pong", *words)
    assert precision(config, device) == expected
    assert with_precision(config, device)["hardware"]["autocast"] == expected


def test_a_run_writes_down_what_it_computes_in(tmp_path, monkeypatch):
    monkeypatch.setattr(switches, "has_bfloat16", lambda: True)
    words = ["env=cartpole", "replay.capacity=1000", "training.warmup_random_steps=10", f"output_dir={tmp_path}"]
    trainer = build.build_trainer(compose(*words, "run_name=a", "hardware.device=cpu", NATIVE), quiet=True)
    trainer.close()
    assert "autocast: bfloat16" in (tmp_path / "a" / ".hydra" / "config.yaml").read_text()
