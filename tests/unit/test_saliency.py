"""Saliency maps point at what a network reads, change with its head, and add up where they have to."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from retrograd.core.types import ArraySpec
from retrograd.networks.policy import make_recurrent_actor_critic
from retrograd.networks.q_network import make_q_network
from retrograd.networks.saliency import (
    Patches,
    blur,
    gradient_maps,
    integrate_gradients,
    integrated_maps,
    perturbation_maps,
)

SIZE, SIDE = 70, 7  # a hundredth of the image is the size of the patch
IMAGE = ArraySpec((4, 84, 84), np.dtype(np.uint8), 0, 255)
FINE = Patches(every=3)  # the usual grid of every fifth pixel is coarser than the patch
METHODS = {
    "perturbation": lambda outputs, image: perturbation_maps(outputs, image, FINE),
    "gradient": lambda outputs, image: gradient_maps(outputs, image, 1),
    "integrated": lambda outputs, image: integrated_maps(outputs, image, 1),
}


def checkered():
    """[1, 4, SIZE, SIZE] in which every pixel changes alike when it is blurred."""
    place = torch.arange(SIZE)
    return torch.stack([60.0 + 180 * ((place[:, None] + place + frame) % 2) for frame in range(4)])[None]


def noise(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, shape).astype(np.float32))


def patch_reader(top, left, frame=slice(None)):
    """Three outputs that depend on one patch alone."""

    def outputs(images):
        seen = (images[:, frame, top : top + SIDE, left : left + SIDE] / 255).square().flatten(1).mean(1)
        return {"choice": seen[:, None] * torch.tensor([1.0, -2.0, 0.5])}

    return outputs


def overlap(drawn, top, left):
    """Intersection over union of the patch and as many pixels as it has, the highest of the map."""
    count = SIDE * SIDE
    assert count == round(0.01 * drawn.numel())
    chosen = torch.zeros(drawn.numel(), dtype=torch.bool)
    chosen[drawn.flatten().topk(count).indices] = True
    patch = torch.zeros(drawn.shape, dtype=torch.bool)
    patch[top : top + SIDE, left : left + SIDE] = True
    chosen = chosen.view_as(patch)
    return float((chosen & patch).sum() / (chosen | patch).sum())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("top", "left"), [(31, 35), (10, 50)])
def test_the_highest_hundredth_is_the_patch_that_is_read(method, top, left):
    drawn = METHODS[method](patch_reader(top, left), checkered())["choice"]
    assert drawn.shape == (SIZE, SIZE)
    assert overlap(drawn, top, left) >= 0.8
    assert overlap(drawn, 0, 0) == 0.0


def test_the_usual_grid_has_its_peak_in_the_patch():
    drawn = perturbation_maps(patch_reader(31, 35), checkered(), Patches())["choice"]
    row, column = divmod(int(drawn.argmax()), SIZE)
    assert 31 <= row < 38
    assert 35 <= column < 42


@pytest.mark.parametrize("frame", [0, 3])
@pytest.mark.parametrize("method", METHODS)
def test_every_frame_of_the_stack_counts(method, frame):
    drawn = METHODS[method](patch_reader(31, 35, slice(frame, frame + 1)), checkered())["choice"]
    assert overlap(drawn, 31, 35) >= 0.8


@pytest.mark.parametrize("method", METHODS)
def test_what_is_not_looked_at_has_an_empty_map(method):
    def blind(images):
        return {"choice": images.mean((1, 2, 3))[:, None] * 0 + torch.tensor([1.0, 2.0])}

    assert METHODS[method](blind, noise(1, 4, SIZE, SIZE))["choice"].abs().max() == 0


@pytest.mark.parametrize("method", METHODS)
def test_another_head_makes_another_map(method):
    """Adebayo et al. 2018: a map that stays when the head is drawn anew shows the image, not the agent."""
    torch.manual_seed(0)
    features = torch.nn.Conv2d(4, 1, 7, 7)  # what is where, 10 × 10

    def with_head(seed):
        weights = torch.randn(100, 2, generator=torch.Generator().manual_seed(seed)).pow(3)  # few of them large

        def outputs(images):
            return {"choice": features(images / 255).flatten(1) @ weights}

        return outputs

    image = noise(1, 4, SIZE, SIZE)
    first, again, other = (METHODS[method](with_head(seed), image)["choice"].flatten() for seed in (1, 1, 2))
    assert spearmanr(first.detach(), again.detach())[0] == pytest.approx(1.0)
    assert abs(spearmanr(first.detach(), other.detach())[0]) < 0.3


def test_integrated_gradients_add_up_to_the_difference():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4 * 12 * 12, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))  # noqa: E501 # fmt: skip
    image, black = noise(1, 4, 12, 12), torch.zeros(1, 4, 12, 12)

    def outputs(images):
        return {"choice": layers(images / 50)}  # far enough from black to bend

    with torch.no_grad():
        difference = float((outputs(image)["choice"] - outputs(black)["choice"])[0, 2])
    shares = integrate_gradients(outputs, image, black, 2)["choice"]
    assert float(shares.sum()) == pytest.approx(difference, rel=0.01)
    slope = torch.autograd.functional.jacobian(lambda pixels: outputs(pixels)["choice"][0, 2], image)
    assert float((slope * image).sum()) != pytest.approx(difference, rel=0.1)  # one slope alone is not enough


def test_a_map_leaves_the_image_and_the_weights_alone():
    torch.manual_seed(0)
    network = make_q_network(IMAGE, 3, network="nature", channels_last=False)
    image = noise(1, 4, 84, 84)
    kept = image.clone()

    def outputs(images):
        return {"choice": network.get_q_values(images)}

    perturbation_maps(outputs, image, Patches(every=40))
    gradient_maps(outputs, image, 0)
    assert torch.equal(image, kept)
    assert all(parameter.grad is None for parameter in network.parameters())


def test_perturbation_is_half_the_squared_change():
    """By hand: one pixel bright, a mask so narrow that only it is blurred."""
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 4] = 10.0

    def outputs(images):
        return {"choice": images.flatten(1)[:, 40:41] * torch.tensor([1.0, 3.0])}

    drawn = perturbation_maps(outputs, image, Patches(every=1, mask_sigma=0.1, blur_sigma=1.0))["choice"]
    change = float(blur(image, 1.0)[0, 0, 4, 4]) - 10.0
    assert float(drawn[4, 4]) == pytest.approx(0.5 * (1 + 9) * change**2, rel=1e-4)
    assert float(drawn[4, 6]) == pytest.approx(0.0, abs=1e-6)


def test_a_blur_keeps_what_is_even_and_the_sum():
    assert torch.allclose(blur(torch.full((1, 2, 12, 12), 7.0), 3.0), torch.tensor(7.0))
    dot = torch.zeros(1, 1, 41, 41)
    dot[0, 0, 20, 20] = 1.0
    spread = blur(dot, 3.0)
    assert float(spread.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(spread[0, 0, 20, 23] / spread[0, 0, 20, 20]) == pytest.approx(np.exp(-0.5), rel=1e-4)


def test_slopes_pass_through_a_memory():
    torch.manual_seed(0)
    from retrograd.core.types import DiscreteActions

    network = make_recurrent_actor_critic(IMAGE, DiscreteActions(3), cell="lstm", hidden_size=8, channels_last=False)
    state = network.core.initial_state(1)

    def outputs(images):
        policy, value, _ = network(images, {name: tensor.expand(len(images), -1).contiguous() for name, tensor in state.items()})  # noqa: E501 # fmt: skip
        return {"choice": policy.log_probs, "value": value[:, None]}

    maps = gradient_maps(outputs, noise(1, 4, 84, 84), 0)
    assert set(maps) == {"choice", "value"}
    assert all(float(drawn.max()) > 0 for drawn in maps.values())
