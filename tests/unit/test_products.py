"""Products with large weights: oneDNN gives what torch gives, only where it was asked for, and learns the same."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F

from retrograd.build import hardware
from retrograd.build.hardware import onednn_is_faster, place
from retrograd.config import ConfigManager
from retrograd.networks import products
from retrograd.networks.layers import NoisyLinear
from retrograd.networks.products import FEWEST_WEIGHTS, Linear, linear, use_onednn

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")

ROWS, INPUTS, OUTPUTS = 32, 640, 256
CLOSE = {"rtol": 1e-5, "atol": 2e-4}  # sums of up to 640 products of size 1, in another order
AMD, OTHER = "vendor_id\t: AuthenticAMD\n", "vendor_id\t: GenuineIntel\n"


def tensors(rows: int = ROWS) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    shapes = ((rows, INPUTS), (OUTPUTS, INPUTS), (OUTPUTS,), (rows, OUTPUTS))
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)  # type: ignore[return-value]


def learned(rows: int, *, onednn: bool) -> list[torch.Tensor]:
    *inputs, slope = tensors(rows)
    features, weight, bias = (tensor.requires_grad_() for tensor in inputs)
    product = linear(features, weight, bias, onednn=onednn)
    return [product.detach(), *torch.autograd.grad(product, (features, weight, bias), slope)]


@pytest.mark.parametrize("rows", [1, 8, 32, 256])
def test_onednn_multiplies_and_differentiates_as_torch_does(rows):
    for ours, torchs in zip(learned(rows, onednn=True), learned(rows, onednn=False), strict=True):
        assert ours.is_contiguous()
        torch.testing.assert_close(ours, torchs, **CLOSE)


def test_without_gradients_and_without_a_bias_the_product_is_the_same():
    features, weight, bias, _ = tensors()
    with torch.no_grad():
        with_bias, without = F.linear(features, weight, bias), F.linear(features, weight)
        torch.testing.assert_close(linear(features, weight, bias, onednn=True), with_bias, **CLOSE)
        torch.testing.assert_close(linear(features, weight, None, onednn=True), without, **CLOSE)


def test_only_what_needs_a_gradient_gets_one():
    features, weight, bias, slope = tensors()
    product = linear(features, weight.requires_grad_(), bias, onednn=True)
    product.backward(slope)
    assert weight.grad is not None
    assert features.grad is None
    assert bias.grad is None


@pytest.fixture
def asked(monkeypatch):
    """How often oneDNN was asked."""
    calls: list[int] = []
    multiply = products._multiply
    monkeypatch.setattr(products, "_multiply", lambda *args: calls.append(1) or multiply(*args))
    return calls


def test_where_onednn_is_no_gain_or_no_way_torch_multiplies(asked):
    features, weight, bias, _ = tensors()
    linear(features, weight, bias, onednn=False)
    linear(features, weight[: FEWEST_WEIGHTS // INPUTS], bias[: FEWEST_WEIGHTS // INPUTS], onednn=True)  # too small
    linear(features.double(), weight.double(), bias.double(), onednn=True)
    linear(features.view(2, ROWS // 2, INPUTS), weight, bias, onednn=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(features, weight, bias, onednn=True).dtype == torch.bfloat16
    assert not asked
    linear(features, weight, bias, onednn=True)
    assert asked


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("rows", [ROWS, NoisyLinear.COMPOSE_FROM_ROWS])
def test_noisy_layers_and_copies_of_networks_take_the_choice_along(noise, rows, asked):
    layer = NoisyLinear(INPUTS, OUTPUTS, 0.5)
    if noise:
        layer.noise = (torch.randn(INPUTS), torch.randn(OUTPUTS))
    features = tensors(rows)[0]
    before = layer(features)
    assert not asked
    use_onednn(layer, True)
    chosen = copy.deepcopy(layer)
    chosen.noise = layer.noise
    torch.testing.assert_close(chosen(features), before, **CLOSE)
    assert asked


def test_the_weights_keep_their_names():
    assert list(Linear(3, 2).state_dict()) == list(torch.nn.Linear(3, 2).state_dict())


@pytest.mark.parametrize(
    ("text", "capability", "faster"),
    [(AMD, "AVX512", True), (AMD, "AVX2", False), (OTHER, "AVX512", False), ("", "AVX512", False)],
)
def test_it_is_chosen_on_the_processors_it_was_measured_on(text, capability, faster, tmp_path, monkeypatch):
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert onednn_is_faster(file) is faster
    assert onednn_is_faster(tmp_path / "none") is False


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("false", False), ("null", "as measured")])
def test_the_config_decides_for_every_layer_of_a_network(value, expected, monkeypatch):
    monkeypatch.setattr(hardware, "onednn_is_faster", lambda: "as measured")

    class Builder:
        config = ConfigManager(None).compose(["env=pong", "hardware.device=cpu", f"hardware.onednn_linear={value}"])

        def device(self):
            return torch.device("cpu")

    network = torch.nn.Sequential(Linear(4, 4), NoisyLinear(4, 4, 0.5), torch.nn.ReLU())
    place(Builder(), network)
    assert [network[0].onednn, network[1].onednn] == [expected, expected]
