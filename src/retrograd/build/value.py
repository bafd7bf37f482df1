"""Value-based agents: network, loss, explorers, replay and the off-policy loop."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING

import torch

from retrograd.agents.c51 import C51Loss
from retrograd.agents.dqn import DQNLoss
from retrograd.agents.iqn import IQNLoss
from retrograd.agents.munchausen import Munchausen
from retrograd.agents.qr_dqn import QRDQNLoss
from retrograd.agents.value import QLoss, ValueAgent
from retrograd.build.hardware import make_scaler, place, precision
from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.schedules import Constant, Linear, WarmUp
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Transitions
from retrograd.exploration import EpsilonGreedy
from retrograd.networks.heads import Categorical, Quantiles
from retrograd.networks.initial import begin_with
from retrograd.networks.layers import NoiseSource
from retrograd.networks.optimizers import make_optimizer
from retrograd.networks.q_network import QNetwork, make_q_network
from retrograd.replay import CompressedStorage, NStep, Prioritized, RawStorage, Replay, Uniform
from retrograd.training.loop import Loop
from retrograd.training.off_policy import off_policy
from retrograd.training.player import Player
from retrograd.training.run import Run

if TYPE_CHECKING:
    from retrograd.build.builder import Builder


def make_agent(builder: Builder, spec: EnvSpec) -> Agent:
    config = builder.config
    agent, preset, hardware = config["agent"], config["preset"], config["hardware"]
    if not isinstance(spec.action, DiscreteActions):
        raise UsageError(f"agent={agent['name']} needs discrete actions; {spec.name} has continuous ones")
    torch.manual_seed(builder.streams.integer("network"))
    network = make_network(builder, spec.obs, spec.action.n)
    place(builder, network)
    optimizer = make_optimizer(
        preset["optimizer"],
        network,
        lr=preset["lr"],
        adam_eps=preset["adam_eps"],
        rmsprop_decay=preset["rmsprop_decay"],
        rmsprop_momentum=preset["rmsprop_momentum"],
        rmsprop_eps=preset["rmsprop_eps"],
        fused=hardware["fused_optimizer"],
    )
    explorer = partial(EpsilonGreedy, num_actions=spec.action.n)
    return ValueAgent(
        network,
        make_loss(builder),
        optimizer,
        explorer=explorer(_epsilon(builder, spec), rng=builder.streams["exploration"]),
        eval_explorer=explorer(Constant(config["eval"]["epsilon"]), rng=builder.streams["evaluation"]),
        target_update_updates=agent["target_update_freq"],
        max_grad_norm=agent["max_grad_norm"],
        loss_reduction=preset["loss_reduction"],
        # a rate that stays is the optimizer's own
        lr=None if preset["lr_end"] is None else builder.over_run(spec, preset["lr"], preset["lr_end"]),
        noise_each_step=agent["noise_each_step"],
        scaler=make_scaler(builder),
        recorded=hardware["cuda_graph"],
        half_precision=precision(config, builder.device()) is not None,
    )


def make_network(builder: Builder, obs: ArraySpec | dict[str, ArraySpec], num_actions: int) -> QNetwork:
    """Encoder and head by the agent's switches; parameters come from torch's generator."""
    agent = builder.config["agent"]
    kind = agent["distributional"]
    distribution: Categorical | Quantiles | None = None
    if kind == "c51":
        distribution = Categorical(agent["v_min"], agent["v_max"], agent["atoms"])
    elif kind == "quantile":
        distribution = Quantiles(agent["quantiles"])
    network = make_q_network(
        obs,
        num_actions,
        network=agent["network"],
        channels_last=builder.config["hardware"]["channels_last"],
        distribution=distribution,
        implicit=(agent["iqn_cosines"], agent["iqn_policy_samples"]) if kind == "iqn" else None,
        noisy_sigma=agent["noisy_sigma"] if agent["noisy"] else None,
        noise=NoiseSource(builder.streams.integer("noise")) if agent["noisy"] or kind == "iqn" else None,
        layer_norm=agent["head_layer_norm"],
        encoder={
            "encoder": agent["encoder"],
            "layer_norm": agent["encoder_layer_norm"],
            "standardize": agent["standardize_pixels"],
            "impala_scale": agent["impala_scale"],
            "impala_pool": agent["impala_pool"],
            "spectral_norm": agent["spectral_norm"],
        },
    )
    if agent["initial_weights"] is not None:
        begin_with(network, agent["initial_weights"])
    return network


def make_loss(builder: Builder) -> QLoss:
    agent = builder.config["agent"]
    double, kappa = agent["double"], agent["kappa"]
    munchausen = (
        Munchausen(
            alpha=agent["munchausen_alpha"],
            tau=agent["munchausen_tau"],
            clip=agent["munchausen_clip"],
            policy=agent["munchausen_policy"],
        )
        if agent["munchausen"]
        else None
    )
    match agent["distributional"]:
        case "c51":
            return C51Loss(double, munchausen, agent["c51_priority"])
        case "quantile":
            return QRDQNLoss(double, kappa, munchausen)
        case "iqn":
            return IQNLoss(agent["iqn_samples"], agent["iqn_target_samples"], double, kappa, munchausen)
    return DQNLoss(double, builder.config["preset"]["loss"] == "huber", munchausen)


def make_replay(builder: Builder, spec: EnvSpec) -> Replay[Transitions]:
    config, values = builder.config, builder.config["replay"]
    decay = values["beta_decay_frames"]
    beta = {"beta_horizon": builder.horizon(spec)} if decay is None else {"beta_decay_frames": decay}
    store = CompressedStorage if values["storage"] == "compressed" else RawStorage
    sampler = (
        Prioritized(
            alpha=values["alpha"],
            beta_start=values["beta_start"],
            beta_end=values["beta_end"],
            **beta,
            frames_per_step=spec.frames_per_step,
            priority_eps=values["priority_eps"],
        )
        if values["prioritized"]
        else Uniform()
    )
    storage = store(spec, values["capacity"], config["training"]["num_envs"])
    reader = NStep(config["agent"]["n_step"], config["agent"]["gamma"])
    return Replay(storage, sampler, reader, builder.streams["replay"], **builder.staging())


def make_loop(builder: Builder, agent: Agent, envs: VecEnv, run: Run) -> Loop:
    values = builder.config["agent"]
    replay, player = make_replay(builder, envs.spec), Player(agent, envs, run)
    begin = partial(
        off_policy,
        agent,
        envs,
        replay,
        run,
        batch_size=values["batch_size"],
        start_size=values["replay_start_size"],
        updates_per_step=Fraction(1, values["update_frequency"]),
        player=player,
    )
    return Loop(
        begin,
        lambda: {f"replay_{name}": value for name, value in replay.diagnostics().items()},
        player=player,
        replay=replay,
    )


def _epsilon(builder: Builder, spec: EnvSpec) -> WarmUp:
    """Random during the warm-up; the decay begins when it ends. Noise takes ε's place."""
    agent, preset = builder.config["agent"], builder.config["preset"]
    warmup = builder.config["training"]["warmup_random_steps"]
    if agent["noisy"] and not agent["noisy_epsilon"]:
        return WarmUp(1.0, warmup, Constant(0.0))
    decay_steps = preset["epsilon_decay_frames"] // spec.frames_per_step
    return WarmUp(1.0, warmup, Linear(preset["epsilon_start"], preset["epsilon_end"], decay_steps, begin_steps=warmup))
