"""Heads and encoders: shapes, the dueling identities, bounded gains."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec
from retrograd.networks.encoders import ImpalaCNN, NatureCNN, make_encoder
from retrograd.networks.heads import Categorical, CosineEmbedding, DuelingHead, LinearHead, Quantiles
from retrograd.networks.initial import begin_with
from retrograd.networks.layers import NoiseSource, NoisyLinear, SpectralConv2d
from retrograd.networks.q_network import make_q_network

SCREEN = ArraySpec((4, 84, 84), np.dtype(np.uint8), 0, 255)
VECTOR = ArraySpec((6,), np.dtype(np.float32))


@pytest.mark.parametrize("atoms", [1, 5])
def test_the_mean_of_q_over_actions_is_v(atoms):
    """REQ NET-2: for each atom by itself."""
    head, features = DuelingHead(8, 3, atoms, hidden=16), torch.randn(4, 8)
    value = head.value(features).view(4, atoms)
    q = head(features).view(4, 3, atoms)
    assert torch.allclose(q.mean(1), value, atol=1e-6)


def test_a_constant_added_to_the_advantages_changes_nothing():
    head, features = DuelingHead(8, 3, 5, hidden=16), torch.randn(4, 8)
    before = head(features)
    with torch.no_grad():
        head.advantage[2].bias += 7.0
    assert torch.allclose(before, head(features), atol=1e-5)


def test_the_trunks_gradient_is_scaled_once_and_the_streams_are_not():
    torch.manual_seed(0)
    trunk, head = torch.nn.Linear(6, 8), DuelingHead(8, 3, hidden=16)
    plain_trunk, plain = copy.deepcopy(trunk), copy.deepcopy(head)
    obs, weights = torch.randn(4, 6), torch.randn(4, 3)
    (head(trunk(obs)) * weights).sum().backward()
    features = plain_trunk(obs)
    value, advantage = plain.value(features), plain.advantage(features)
    ((value + advantage - advantage.mean(1, keepdim=True)) * weights).sum().backward()
    assert torch.allclose(trunk.weight.grad, plain_trunk.weight.grad * 2**-0.5, atol=1e-6)
    for scaled, whole in zip(head.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(scaled.grad, whole.grad, atol=1e-6)


def test_distributions_read_their_expectation():
    logits = torch.log(torch.tensor([[[0.25, 0.0, 0.75], [1.0, 0.0, 0.0]]]) + 1e-30)
    assert torch.allclose(Categorical(-1.0, 1.0, 3)(logits), torch.tensor([[0.5, -1.0]]), atol=1e-6)
    assert torch.allclose(Quantiles(3)(torch.tensor([[[0.0, 1.0, 5.0]]])), torch.tensor([[2.0]]))


def test_cosines_begin_at_zero():
    embedding = CosineEmbedding(4, 4)
    with torch.no_grad():
        embedding.linear.weight.copy_(torch.eye(4))
        embedding.linear.bias.zero_()
    expected = torch.cos(torch.pi * 0.25 * torch.arange(4)).clamp(min=0)
    assert torch.allclose(embedding(torch.tensor([[0.25]]))[0, 0], expected, atol=1e-6)


@pytest.mark.parametrize("network", ["nature", "dueling"])
@pytest.mark.parametrize("distribution", [None, Categorical(-1.0, 1.0, 5), Quantiles(5)])
def test_shapes(network, distribution):
    made = make_q_network(SCREEN, 3, network=network, channels_last=False, distribution=distribution)
    obs = torch.zeros(2, 4, 84, 84, dtype=torch.uint8)
    assert made(obs).shape == ((2, 3) if distribution is None else (2, 3, 5))
    assert made.get_q_values(obs).shape == (2, 3)


def test_layer_norm_makes_features_indifferent_to_the_scale_of_weights():
    encoder = NatureCNN(SCREEN, layer_norm=True, channels_last=False)
    obs = torch.randint(0, 255, (2, 4, 84, 84), dtype=torch.uint8)
    before = encoder(obs)
    with torch.no_grad():
        encoder.convolutions[0].weight *= 3
        encoder.convolutions[0].bias *= 3
    assert torch.allclose(before, encoder(obs), atol=1e-3)


def test_impala_pools_to_the_same_size_for_all_screens():
    sizes = set()
    for side in (84, 100):
        spec = ArraySpec((4, side, side), np.dtype(np.uint8), 0, 255)
        encoder = make_encoder(spec, projected=False, encoder="impala", impala_scale=2, impala_pool=6)
        sizes.add((encoder.width, encoder(torch.zeros(1, 4, side, side, dtype=torch.uint8)).shape[1]))
    assert sizes == {(64 * 36, 64 * 36)}


def test_impala_has_the_papers_parameters():
    count = sum(parameter.numel() for parameter in ImpalaCNN(SCREEN, 256).convolutions.parameters())
    expected = sum(9 * a * b + b for a, b in ((4, 16), (16, 32), (32, 32)))
    expected += sum(4 * (9 * a * a + a) for a in (16, 32, 32))
    assert count == expected


def test_impala_refuses_vectors():
    with pytest.raises(UsageError, match="impala"):
        make_encoder(VECTOR, encoder="impala")


def test_the_small_encoder_is_that_of_the_first_dqn() -> None:
    """Mnih et al. 2013: 16 8×8 filters with stride 4, 32 4×4 with stride 2, 256 units."""
    encoder = make_encoder(SCREEN, encoder="small")
    convolutions = [layer for layer in encoder.modules() if isinstance(layer, torch.nn.Conv2d)]
    assert [(c.out_channels, *c.kernel_size, *c.stride) for c in convolutions] == [(16, 8, 8, 4, 4), (32, 4, 4, 2, 2)]
    assert encoder(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 256)
    with pytest.raises(UsageError, match="reads images"):
        make_encoder(VECTOR, encoder="small")


def test_the_padded_encoder_is_that_of_dopamine() -> None:
    """What TensorFlow and Flax call SAME: windows begin every ``stride`` pixels, zeros where they reach too far."""
    encoder = make_encoder(SCREEN, encoder="padded", channels_last=False)
    convolutions = [layer for layer in encoder.convolutions if isinstance(layer, torch.nn.Conv2d)]
    sizes = [(84, 21, 2), (21, 11, 1), (11, 11, 1)]  # places before and after, zeros to the left and above
    for convolution, (before, after, zeros) in zip(convolutions, sizes, strict=True):
        place = list(encoder.convolutions).index(convolution)
        kernel, stride = convolution.kernel_size[0], convolution.stride[0]
        with torch.no_grad():
            convolution.weight.fill_(1.0)
            convolution.bias.zero_()
            counted = convolution(
                encoder.convolutions[place - 1](torch.ones(1, convolution.in_channels, before, before))
            )
        begins = torch.arange(after) * stride - zeros
        inside = (begins + kernel).clamp(max=before) - begins.clamp(min=0)  # pixels of a window that are there
        assert torch.equal(counted[0, 0], convolution.in_channels * (inside[:, None] * inside).float())
    assert encoder.project[0].in_features == 7744
    assert encoder(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 512)


@pytest.mark.parametrize(("scheme", "fan_out"), [("glorot", True), ("fan_in", False)])
def test_initial_weights_have_the_variance_that_flax_gives_them(scheme: str, fan_out: bool) -> None:
    """Flax's xavier_uniform divides 1 by the mean of both fans, its variance_scaling(1/√3, fan_in) 1/√3 by one."""
    torch.manual_seed(0)
    encoder = make_encoder(SCREEN, encoder="padded")
    begin_with(encoder, scheme)
    layers = [layer for layer in encoder.modules() if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear)]
    assert len(layers) == 4
    for layer in layers:
        outputs, inputs, *window = layer.weight.shape
        area = math.prod(window)
        variance = 2 / ((inputs + outputs) * area) if fan_out else 3**-0.5 / (inputs * area)
        with torch.no_grad():
            assert layer.weight.var().item() == pytest.approx(variance, rel=0.03)
            assert layer.weight.abs().max().item() == pytest.approx(math.sqrt(3 * variance), rel=0.01)
            assert not layer.bias.any()


def test_patches_read_every_pixel_once() -> None:
    """14 × 14 windows of 6 × 6 pixels lie side by side: each pixel reaches exactly one of them."""
    encoder = make_encoder(SCREEN, encoder="patches")
    first = next(layer for layer in encoder.modules() if isinstance(layer, torch.nn.Conv2d))
    with torch.no_grad():
        first.weight.fill_(1.0)
        first.bias.zero_()
        assert first(torch.ones(1, 4, 84, 84)).shape == (1, 32, 14, 14)
        pixel = torch.zeros(1, 4, 84, 84)
        pixel[0, 2, 83, 5] = 1.0
        reached = first(pixel)[0, 0].nonzero().tolist()
    assert reached == [[13, 0]]
    assert encoder(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 256)


@pytest.mark.parametrize("name", ["nature", "padded", "small", "patches"])
def test_layer_norm_stands_before_every_activation_of_the_encoder(name) -> None:
    network = make_q_network(
        SCREEN, 3, network="nature", channels_last=True, encoder={"encoder": name, "layer_norm": True}
    )
    layers = [layer for layer in network.encoder.modules() if not list(layer.children())]
    before = [layers[place - 1] for place, layer in enumerate(layers) if isinstance(layer, nn.ReLU)]
    assert len(before) >= 3
    assert all(isinstance(layer, nn.GroupNorm | nn.LayerNorm) for layer in before)


@pytest.mark.parametrize("encoder", ["small", "patches"])
@pytest.mark.parametrize("more", [{}, {"network": "dueling"}, {"noisy_sigma": 0.5}, {"implicit": (64, 32)}])
def test_the_small_encoders_keep_their_256_units_whatever_is_switched_on(more, encoder):
    options = {"network": "nature", "channels_last": False, "noise": NoiseSource(0), **more}
    network = make_q_network(SCREEN, 3, encoder={"encoder": encoder}, **options)
    widths = {module.weight.shape[0] for module in network.modules() if isinstance(module, nn.Linear | NoisyLinear)}
    assert 256 in widths
    assert 512 not in widths


def gains(module):
    for layer in module.modules():
        if isinstance(layer, SpectralConv2d):
            matrix = layer.weight.detach().flatten(1)
            right = torch.nn.functional.normalize(matrix.T @ layer.left, dim=0)
            yield (torch.linalg.matrix_norm(matrix, 2) / (layer.left @ (matrix @ right))).item()


def test_residual_convolutions_have_a_gain_of_one():
    torch.manual_seed(0)
    encoder = ImpalaCNN(SCREEN, None, spectral_norm=True)
    assert len(list(gains(encoder))) == 12
    assert max(gains(encoder)) <= 1.1  # a first estimate
    for _ in range(40):  # each pass in training is a power iteration more
        encoder(torch.zeros(1, *SCREEN.shape, dtype=torch.uint8))
    assert max(gains(encoder)) <= 1.02


def test_power_iterations_happen_only_where_it_learns():
    layer, features = SpectralConv2d(4, 4, 3, padding=1), torch.randn(1, 4, 6, 6)
    with torch.no_grad():
        layer.weight.normal_()
    before = layer.left.clone()
    with torch.no_grad():
        layer(features)
    assert torch.equal(before, layer.left)
    layer(features).sum().backward()
    assert not torch.equal(before, layer.left)


def test_a_gain_is_found_in_float32_whatever_the_layer_computes_in():
    layer, features = SpectralConv2d(4, 4, 3, padding=1), torch.randn(1, 4, 6, 6)
    exact = layer._gain()
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(features)
    assert out.dtype == torch.bfloat16
    out.float().sum().backward()
    assert layer.left.dtype == torch.float32
    assert torch.equal(layer._gain(), exact) or (layer._gain() - exact).abs() < 1e-3


def test_spectral_state_goes_to_the_copy():
    layer = SpectralConv2d(4, 4, 3, padding=1)
    assert "left" in layer.state_dict()


def test_linear_head_with_hidden_layer():
    assert LinearHead(8, 3, hidden=16, layer_norm=True)(torch.randn(2, 8)).shape == (2, 3)


BYTES = np.dtype(np.uint8)


@pytest.mark.parametrize(
    "spec",
    [
        ArraySpec((128,), BYTES, 0, 255),
        ArraySpec((96, 96), BYTES, 0, 255),
        {"image": ArraySpec((4, 84, 84), BYTES, 0, 255), "speed": ArraySpec((2,), np.dtype(np.float32))},
        ArraySpec((30,), BYTES, 0, 15),
        ArraySpec((30,), BYTES),  # of unknown height
    ],
    ids=["memory", "gray", "among others", "half bytes", "unbounded"],
)
def test_bytes_that_are_no_image_are_brought_to_one_as_well(spec):
    torch.manual_seed(0)
    encoder = make_encoder(spec)
    seen: list[torch.Tensor] = []
    encoder.layers.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    specs = spec if isinstance(spec, dict) else {"": spec}
    most = {
        name: torch.full((2, *part.shape), min(part.high, 255) if part.dtype == BYTES else 3.0).to(
            torch.uint8 if part.dtype == BYTES else torch.float32
        )
        for name, part in specs.items()
    }
    encoder(most if isinstance(spec, dict) else most[""])
    vectors = 2 if isinstance(spec, dict) else 0
    assert torch.allclose(seen[0][:, : seen[0].shape[1] - vectors], torch.ones(()), atol=1e-6)
    assert (seen[0][:, seen[0].shape[1] - vectors :] == 3.0).all()


def test_a_single_number_is_an_observation():
    time, place = ArraySpec((), np.dtype(np.float32)), ArraySpec((3,), np.dtype(np.float32))
    assert make_encoder(time)(torch.zeros(5)).shape == (5, 128)
    assert make_encoder({"time": time, "place": place})({"time": torch.zeros(5), "place": torch.zeros(5, 3)}).shape == (
        5,
        128,
    )
