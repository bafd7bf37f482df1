"""Pixels by their own mean and deviation: right, still while a rollout is learned from, saved with the network."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from retrograd.agents.value import STATISTICS_EVERY
from retrograd.build import Builder
from retrograd.config import ConfigManager
from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Rollout, Transitions
from retrograd.networks import kernels
from retrograd.networks.encoders import make_encoder
from retrograd.networks.statistics import LIMIT, MOST_FRAMES, ScreenStatistics, screen_statistics

SCREEN = ArraySpec((4, 84, 84), np.dtype(np.uint8))


def frames(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(256, size=shape, dtype=np.uint8))


def test_they_are_those_of_all_newest_frames_however_they_came():
    statistics, seen = ScreenStatistics(5, 6), frames(60, 4, 5, 6)
    for part in torch.split(seen, [7, 1, 30, 22]):
        statistics.see(part)
    newest = seen[:, -1].double() / 255
    torch.testing.assert_close(statistics.mean, newest.mean(0).float())
    torch.testing.assert_close(statistics.variance, newest.var(0, correction=0).float())
    assert statistics.frames == 60


def test_a_rollout_counts_its_frames_in_any_shape_and_a_part_of_many_is_enough():
    one, other = ScreenStatistics(5, 6), ScreenStatistics(5, 6)
    seen = frames(10, 3, 4, 5, 6)
    one.see(seen)
    other.see(seen.flatten(0, 1))
    assert torch.equal(one.mean, other.mean)
    many = ScreenStatistics(5, 6)
    many.see(frames(5000, 2, 5, 6))
    assert many.frames <= MOST_FRAMES


def test_what_rarely_happens_speaks_loudest_and_what_never_changes_says_nothing():
    seen = np.zeros((400, 1, 4, 4), np.uint8)
    seen[:, :, 0, 0] = 200  # a wall
    seen[7, :, 1, 1] = 100  # a ball that came by once
    seen[::2, :, 2, 2] = 100  # a paddle that is there half of the time
    statistics = ScreenStatistics(4, 4)
    statistics.see(torch.from_numpy(seen))
    screen = statistics(torch.from_numpy(seen[7:8]), channels_last=True)[0, 0]
    assert screen[1, 1] == LIMIT
    assert abs(screen[2, 2]) == pytest.approx(1, rel=0.01)
    assert abs(screen[0, 0]) < 1e-3


def test_before_anything_was_seen_pixels_stay_as_they_are():
    statistics, seen = ScreenStatistics(4, 4), frames(2, 1, 4, 4)
    torch.testing.assert_close(statistics(seen, channels_last=True), seen.float() / 255, rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(kernels.KERNELS is None, reason="the extension was not built")
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_the_extension_gives_the_bits_of_torch(channels, monkeypatch):
    statistics, window = ScreenStatistics(84, 84), frames(6, channels + 2, 84, 84)
    statistics.see(window)
    for seen in (window[:, :channels].contiguous(), window[:, 2:]):  # in one piece, and as a replay hands them out
        fast = statistics(seen, channels_last=True)
        with monkeypatch.context() as patched:
            patched.setattr(kernels, "KERNELS", None)
            slow = statistics(seen, channels_last=True)
        assert torch.equal(fast, slow)
        assert fast.is_contiguous(memory_format=torch.channels_last)
        assert fast.abs().max() <= LIMIT


@pytest.mark.skipif(kernels.KERNELS is None, reason="the extension was not built")
def test_the_extension_refuses_what_does_not_fit():
    pictures, out = np.zeros((2, 4, 8, 8), np.uint8), np.zeros((2, 8, 8, 4), np.float32)
    gain = np.ones((8, 8, 4), np.float32)
    kernels.KERNELS.standardized(pictures, 4, gain, gain, 5.0, out)
    for wrong in (gain[:4].copy(), gain.astype(np.float64), np.ones((8, 8), np.float32)):
        with pytest.raises(ValueError, match="gain and shift"):
            kernels.KERNELS.standardized(pictures, 4, wrong, gain, 5.0, out)


@pytest.mark.parametrize("kind", ["nature", "small", "patches", "impala"])
def test_every_encoder_of_pictures_can_have_them(kind):
    encoder = make_encoder(SCREEN, encoder=kind, standardize=True)
    before = encoder(frames(2, 4, 84, 84))
    encoder.statistics.see(frames(9, 4, 84, 84))
    assert not torch.equal(encoder(frames(2, 4, 84, 84)), before)
    again = make_encoder(SCREEN, encoder=kind, standardize=True)
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(again(frames(2, 4, 84, 84)), encoder(frames(2, 4, 84, 84)))
    assert "statistics.mean" not in make_encoder(SCREEN, encoder=kind).state_dict()


def test_vectors_are_refused():
    with pytest.raises(UsageError, match="normalize_observations"):
        make_encoder(ArraySpec((4,), np.dtype(np.float32)), standardize=True)


def test_a_rollout_is_learned_from_with_the_statistics_it_was_played_with():
    words = ["agent=ppo", "env=pong", "agent.standardize_pixels=true", "agent.encoder=small", "hardware.autocast=null"]
    sizes = ["training.num_envs=2", "agent.rollout_steps=4", "agent.epochs=1", "agent.minibatches=1"]
    spec = EnvSpec("screen", SCREEN, DiscreteActions(3), frame_stack=4, frames_per_step=4)
    agent = Builder(ConfigManager(None).compose([*words, *sizes, "hardware.device=cpu"])).agent(spec)
    (statistics,) = screen_statistics([agent.network])  # one encoder for actor and critic
    for round_ in range(2):
        obs = frames(4, 2, 4, 84, 84, seed=round_)
        with torch.no_grad():
            policy, value = agent.network(obs.flatten(0, 1))
        action, zeros = torch.zeros(4, 2, dtype=torch.int64), torch.zeros(4, 2)
        log_prob, value = policy.log_prob(action.flatten()).view(4, 2), value.view(4, 2)
        advantage = torch.linspace(-1, 1, 8).view(4, 2)
        update = agent.update(Rollout(obs, action, zeros, log_prob, value, advantage, advantage + value, {}), step=8)
        assert float(update.metrics["approx_kl"]) == pytest.approx(0, abs=1e-9)
        assert statistics.frames == 8 * (round_ + 1)


def test_a_value_agent_and_its_target_see_the_screen_alike_through_saving_and_loading():
    words = ["env=pong", "agent=qr_dqn", "agent.standardize_pixels=true", "agent.encoder=patches", "agent.batch_size=4"]
    spec = EnvSpec("screen", SCREEN, DiscreteActions(3), frame_stack=4, frames_per_step=4)
    builder = Builder(ConfigManager(None).compose([*words, "hardware.device=cpu"]))
    agent, again = builder.agent(spec), builder.agent(spec)
    (statistics,) = screen_statistics([agent.online, agent.target])  # one for both
    for number in range(STATISTICS_EVERY + 1):
        agent.update(transitions(seed=number), step=number)
    assert statistics.frames == 8  # of the first update and of the one after a whole period
    for name, part in again.parts.items():
        part.load_state_dict(agent.parts[name].state_dict())
    assert len(screen_statistics([again.online, again.target])) == 1
    seen = frames(2, 4, 84, 84)
    for network, twin in ((agent.online, again.online), (agent.target, again.target)):
        assert torch.equal(network.get_q_values(seen), twin.get_q_values(seen))


def transitions(seed: int) -> Transitions:
    obs, next_obs = frames(4, 4, 84, 84, seed=seed), frames(4, 4, 84, 84, seed=seed + 100)
    action, ones = torch.zeros(4, dtype=torch.int64), torch.ones(4)
    return Transitions(obs, action, ones, 0.99 * ones, next_obs, ones, np.arange(4))
