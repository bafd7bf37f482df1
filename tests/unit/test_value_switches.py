"""From DQN to Rainbow by switches: what each one changes, and what it leaves alone to the last bit."""

import copy
import hashlib
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from retrograd.agents.c51 import C51Loss
from retrograd.build import build_trainer
from retrograd.build.builder import Builder
from retrograd.build.value import make_loss, make_replay
from retrograd.config import ConfigManager, from_saved
from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step, Transitions
from retrograd.networks.encoders import MLP
from retrograd.networks.layers import NoisyLinear
from retrograd.networks.optimizers import DeepMindRMSprop
from retrograd.replay import Prioritized

SPEC = EnvSpec("test", ArraySpec((6,), np.dtype(np.float32)), DiscreteActions(3))
SCREEN = EnvSpec("test", ArraySpec((4, 84, 84), np.dtype(np.uint8), 0, 255), DiscreteActions(3), 4, 4)
manager = ConfigManager(user_folder=None)


def builder(*overrides):
    return Builder(manager.compose(["env=cartpole", "hardware.device=cpu", *overrides]))


def batches(count, size=8):
    generator = torch.Generator().manual_seed(5)
    for _ in range(count):
        yield Transitions(
            obs=torch.randn(size, 6, generator=generator),
            action=torch.randint(3, (size,), generator=generator),
            reward=torch.randn(size, generator=generator),
            discount=torch.where(torch.rand(size, generator=generator) < 0.1, 0.0, 0.99),
            next_obs=torch.randn(size, 6, generator=generator),
            weight=torch.rand(size, generator=generator),
            index=np.arange(size),
        )


def digest(*tensors):
    return hashlib.sha256(b"".join(tensor.detach().contiguous().numpy().tobytes() for tensor in tensors)).hexdigest()


def test_all_switches_off_is_dqn_to_the_last_bit():
    """500 updates against DQN written out here in one piece: REQ ALGO-1."""
    made = builder("agent.target_update_freq=50")
    agent = made.agent(SPEC)
    torch.manual_seed(made.streams.integer("network"))
    encoder = MLP(SPEC.obs)
    network = torch.nn.Sequential(encoder, torch.nn.Linear(128, 3))
    target = copy.deepcopy(network)
    optimizer = DeepMindRMSprop(network.parameters(), 2.5e-4, 0.95, 0.95, 0.01)
    for update, batch in enumerate(batches(500), start=1):
        agent.update(batch, step=update)
        with torch.no_grad():
            goal = batch.reward + batch.discount * target(batch.next_obs).max(1).values
        chosen = network(batch.obs).gather(1, batch.action[:, None])[:, 0]
        loss = (F.huber_loss(chosen, goal, reduction="none") * batch.weight).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update % 50 == 0:
            target.load_state_dict(network.state_dict())
    assert digest(*network.parameters()) == digest(*agent.online.parameters())
    assert digest(*target.parameters()) == digest(*agent.target.parameters())


def test_the_learning_rate_may_fall_over_the_run():
    agent = builder("preset.lr=0.1", "preset.lr_end=0.02", "training.total_env_frames=80").agent(SPEC)
    agent.update(next(batches(1)), step=40)
    assert agent.optimizer.param_groups[0]["lr"] == pytest.approx(0.06)
    assert agent.metrics(40)["learning_rate"] == pytest.approx(0.06)
    assert "learning_rate" not in builder().agent(SPEC).metrics(40)


def fingerprints(*overrides):
    """Hashes of the parts a switch may or may not touch."""
    made = builder("agent.target_update_freq=50", "training.warmup_random_steps=100", *overrides)
    agent = made.agent(SPEC)
    first_layer = agent.online.encoder.layers[0]
    marks = {
        "first_layer": digest(first_layer.weight, first_layer.bias),
        "network": digest(*agent.online.parameters()),
        "loss": repr(agent.loss),
    }
    obs = np.zeros((4, 6), np.float32)
    marks["warmup_actions"] = str([agent.act(obs, step=step, explore=True).action.tolist() for step in range(5)])
    marks["epsilon"] = str([agent.metrics(step)["epsilon"] for step in (0, 100, 10**6)])
    replay = make_replay(made, SPEC)
    rng = np.random.default_rng(2)
    for time in range(12):
        flags = np.array([time == 8, False]), np.array([False, time == 5])
        step = Step(rng.normal(size=(2, 6)).astype("f4"), rng.integers(3, size=2), rng.normal(size=2).astype("f4"),
                    *flags, flags[0] | flags[1], rng.normal(size=(2, 6)).astype(np.float32))  # fmt: skip
        replay.add(step)
    drawn = replay.sample(16, step=1)
    marks["replay"] = digest(drawn.obs, drawn.action, drawn.reward, drawn.discount, drawn.weight)
    for batch in batches(3):
        agent.update(batch, step=1)
    marks["learned"] = digest(*agent.online.parameters())
    return marks


SWITCHES = {
    "agent.double=true": {"loss", "learned"},
    "agent.n_step=3": {"replay"},
    "replay=prioritized": {"replay"},
    "agent.network=dueling": {"network", "learned"},
    "agent.noisy=true": {"network", "learned", "epsilon"},
    "agent.distributional=c51": {"network", "loss", "learned"},
    "agent.distributional=quantile": {"network", "loss", "learned"},
    "agent.distributional=iqn": {"network", "loss", "learned"},
    "agent.munchausen=true": {"loss", "learned"},
    "agent.max_grad_norm=0.1": {"learned"},
    "preset.loss=squared": {"loss", "learned"},
}


@pytest.mark.parametrize(("switch", "changes"), SWITCHES.items())
def test_a_switch_changes_what_it_should_and_nothing_else(switch, changes):
    plain, switched = fingerprints("replay.capacity=1000", "training.num_envs=2", "agent.batch_size=8"), fingerprints(
        "replay.capacity=1000", "training.num_envs=2", "agent.batch_size=8", switch
    )  # fmt: skip
    assert {name for name in plain if plain[name] != switched[name]} == changes


@pytest.mark.parametrize("distributional", ["null", "c51", "quantile", "iqn"])
def test_switches_go_together_in_every_combination(distributional):
    """REQ ALGO-1: all but Double with Munchausen, which is refused."""
    few = ("agent.quantiles=5", "agent.atoms=5", "agent.iqn_samples=4", "agent.iqn_target_samples=3")
    for network, double, noisy, munchausen in product(("nature", "dueling"), *[("true", "false")] * 3):
        switches = (f"agent.network={network}", f"agent.double={double}", f"agent.noisy={noisy}")
        switches += (f"agent.munchausen={munchausen}", f"agent.distributional={distributional}", *few)
        if double == munchausen == "true":
            with pytest.raises(UsageError):
                builder(*switches)
            continue
        agent = builder(*switches).agent(SPEC)
        before = digest(*agent.online.parameters())
        update = agent.update(next(batches(1)), step=1)
        assert update.priority.shape == (8,)
        assert (update.priority >= 0).all()
        assert digest(*agent.online.parameters()) != before
        assert agent.act(np.zeros((4, 6), np.float32), step=10**9, explore=True).action.shape == (4,)


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["agent.munchausen=true", "agent.double=true"], "none is chosen"),
        (["agent.distributional=c51", "preset.loss=squared"], "its own loss"),
        (["agent.distributional=c51", "agent.v_min=1", "agent.v_max=-1"], "must be below"),
        (["agent.noisy_epsilon=true"], "without agent.noisy"),
        (["agent.noise_each_step=true"], "without agent.noisy"),
        (["agent.spectral_norm=true"], "agent.encoder=impala"),
        (["agent.impala_pool=6"], "agent.encoder=impala"),
        (["agent.encoder=impala", "agent.encoder_layer_norm=true"], "no such layers"),
        (["agent.initial_weights=glorot", "agent.noisy=true"], "weights of their own"),
        (["agent.initial_weights=glorott"], "'glorot'"),
        (["agent.distributional=c52"], "'c51'"),
        (["agent.atoms=1"], "at least 2"),
        (["agent.n_step=0"], "from 1"),
    ],
)
def test_what_has_no_meaning_is_refused_with_the_reason(overrides, reason):
    with pytest.raises(UsageError) as caught:
        manager.compose(overrides)
    assert reason in str(caught.value)


def test_rainbow_is_the_one_asked_for():
    """REQ ALGO-2"""
    config = manager.compose(["agent=rainbow", "env=space_invaders"])
    preset, replay, agent = config["preset"], config["replay"], config["agent"]
    assert (preset["optimizer"], preset["lr"], agent["gamma"], agent["n_step"]) == ("adam", 6.25e-5, 0.99, 3)
    assert (agent["distributional"], agent["atoms"], agent["v_min"], agent["v_max"]) == ("c51", 51, -10, 10)
    assert (replay["prioritized"], replay["alpha"], replay["beta_start"], replay["beta_end"]) == (True, 0.6, 0.4, 1.0)
    assert (agent["target_update_freq"], agent["max_grad_norm"], agent["double"]) == (1000, 10.0, True)
    assert (agent["network"], agent["noisy"], agent["noise_each_step"]) == ("dueling", True, False)
    assert config["eval"]["epsilon"] == 0.0
    assert config["env"]["game_id"] == "ALE/SpaceInvaders-v5"
    made = Builder(config)
    assert isinstance(make_loss(made), C51Loss)
    assert made.agent(SCREEN).metrics(10**6)["epsilon"] == 0.0


@pytest.mark.parametrize(
    "words",
    [
        ["zoo=space_invaders_rainbow"],
        ["agent=rainbow", "replay.beta_decay_frames=null", "training.total_env_frames=2000000"],
        ["agent=minatar_rainbow", "env=minatar_breakout", "training.total_env_frames=1000000"],
    ],
)
def test_beta_grows_to_one_within_the_run(words):
    """REQ ALGO-2: left at its start, the weights would never make up for the priorities."""
    made = Builder(manager.compose(words))
    spec = replace(SPEC, frames_per_step=4)
    episodes = made.config["training"]["total_episodes"]
    frames = made.config["training"]["total_env_frames"] if episodes is None else episodes * 4000
    steps = frames // 4
    sampler = make_replay(made, spec).sampler
    assert sampler.beta(0) == 0.4
    assert sampler.beta(steps // 4) < 0.8
    assert sampler.beta(steps) == pytest.approx(1.0)


def test_learning_waits_for_the_first_complete_window(tmp_path):
    """Three steps ahead, eight games: the first vector step completes no transition."""
    small = ["env=cartpole", "agent=rainbow", "replay.capacity=2000", "training.warmup_random_steps=0"]
    quiet = ["training.light_eval_every_frames=null", "training.full_eval_every_frames=null", f"output_dir={tmp_path}"]
    trainer = build_trainer(manager.compose([*small, *quiet]), quiet=True)
    while trainer.run.step < 80:
        trainer.advance()
    trainer.close()
    assert trainer.agent.updates > 5


def test_rainbows_parts_can_be_chosen_otherwise():
    made = builder("agent=rainbow", "replay=uniform", "agent.noisy=false")
    assert not made.config["replay"]["prioritized"]
    assert made.agent(SPEC).metrics(10**9)["epsilon"] == pytest.approx(0.01)  # without noise ε-greedy explores again


def test_rainbow_by_episodes():
    """REQ RUN-13"""
    training = manager.compose(["agent=rainbow", "training=rainbow_episodes", "eval=rainbow_episodes"])
    values = training["training"]
    assert (values["total_episodes"], values["max_episode_steps"]) == (1000, 10000)
    assert (values["eval_every_episodes"], values["checkpoint_every_episodes"]) == (50, 100)
    assert training["eval"]["full_episodes"] == 5


def test_dopamines_rainbow_has_its_constants():
    config = manager.compose(["agent=rainbow_dopamine"])
    agent, preset, protocol = config["agent"], config["preset"], config["env_protocol"]
    assert (agent["network"], agent["double"], agent["noisy"], agent["n_step"]) == ("nature", False, False, 3)
    assert (preset["lr"], preset["adam_eps"], preset["epsilon_end"]) == (6.25e-5, 1.5e-4, 0.01)
    assert agent["target_update_freq"] * agent["update_frequency"] == 8000
    assert (config["replay"]["alpha"], config["replay"]["beta_start"], config["replay"]["beta_end"]) == (0.5, 0.5, 0.5)
    assert (protocol["repeat_action_probability"], protocol["terminal_on_life_loss_train"]) == (0.25, False)
    assert config["training"]["warmup_random_steps"] == 20000
    dqn = manager.compose(["agent=dqn_dopamine"])["agent"]
    assert agent["encoder"] == dqn["encoder"] == "padded"
    assert (agent["initial_weights"], dqn["initial_weights"]) == ("fan_in", "glorot")


def test_dopamines_dqn_takes_its_steps_with_half_the_loss():
    config = manager.compose(["agent=dqn_dopamine"])
    preset = config["preset"]
    assert (preset["optimizer"], preset["loss"], preset["lr"]) == ("adam", "squared", 6.25e-5)
    assert config["agent"]["target_update_freq"] * config["agent"]["update_frequency"] == 8000
    assert (config["env_protocol"]["name"], config["training"]["num_envs"]) == ("dopamine", 1)

    def after(scale: float, eps: float) -> torch.Tensor:
        weight = torch.ones(3, requires_grad=True)
        adam = torch.optim.Adam([weight], lr=preset["lr"], eps=eps)
        for turn in range(5):
            adam.zero_grad()
            (scale * (weight * torch.tensor([1e-4, 1e-3, 1.0]) - turn).square().sum()).backward()
            adam.step()
        return weight.detach()

    torch.testing.assert_close(after(0.5, preset["adam_eps"]), after(1.0, 1.5e-4), rtol=0, atol=1e-9)
    assert not torch.allclose(after(0.5, 1.5e-4), after(1.0, 1.5e-4), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["double", "c51", "qr_dqn", "iqn", "munchausen", "munchausen_iqn", "rainbow", "modern"]
)
def test_every_shipped_agent_learns_and_acts(name):
    made = builder(f"agent={name}", "training.warmup_random_steps=1")
    agent = made.agent(SPEC)
    before = digest(*agent.online.parameters())
    for batch in batches(2):
        update = agent.update(batch, step=1)
        assert update.priority.shape == (8,)
    assert digest(*agent.online.parameters()) != before
    assert agent.act(np.zeros((4, 6), np.float32), step=10**6, explore=True).action.shape == (4,)


def test_rainbow_has_priorities_three_steps_and_noise():
    made = builder("agent=rainbow", "replay.capacity=1000", "training.warmup_random_steps=1")
    replay = make_replay(made, SPEC)
    assert isinstance(replay.sampler, Prioritized)
    assert replay.reader.n_steps == 3
    agent = made.agent(SPEC)
    assert [type(layer) for layer in agent.online.head.value][::2] == [NoisyLinear, NoisyLinear]
    assert agent.online(torch.zeros(2, 6)).shape == (2, 3, 51)


def test_a_config_from_before_the_switches_reads_as_all_off():
    values = {key: dict(value) if hasattr(value, "items") else value for key, value in manager.compose().values.items()}
    old = {key: values["agent"][key] for key in ("kind", "name", "network", "double", "gamma", "frame_stack",
           "update_frequency", "target_update_freq", "replay_start_size", "batch_size", "max_grad_norm")}  # fmt: skip
    config = from_saved({**values, "agent": old})
    assert config.values == manager.compose().values
    assert config["track"] == "A"


def test_btr_has_its_parts():
    config = manager.compose(["agent=btr", "env=pong"])
    agent = config["agent"]
    assert (agent["encoder"], agent["impala_scale"], agent["impala_pool"], agent["spectral_norm"]) == (
        "impala",
        2,
        6,
        True,
    )
    assert (agent["distributional"], agent["munchausen"], agent["noisy"], agent["double"]) == ("iqn", True, True, False)
    assert (config["training"]["num_envs"], agent["batch_size"], agent["update_frequency"]) == (64, 256, 64)
    assert config["preset"]["adam_eps"] == pytest.approx(0.005 / 256)
    made = Builder(config)
    learner = made.agent(SCREEN)
    obs = torch.randint(255, (4, 4, 84, 84), dtype=torch.uint8)
    batch = Transitions(
        obs, torch.tensor([0, 1, 2, 0]), torch.ones(4), torch.full((4,), 0.99), obs, torch.ones(4), np.arange(4)
    )
    before = [buffer.clone() for buffer in learner.target.buffers()]
    update = learner.update(batch, step=1)
    assert update.priority.shape == (4,)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.target.buffers(), strict=True))
    learner.sync_target()
    for online, target in zip(learner.online.state_dict().values(), learner.target.state_dict().values(), strict=True):
        assert torch.equal(online, target)
