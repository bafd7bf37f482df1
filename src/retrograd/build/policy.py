"""PPO and A2C: network, loss, optimizer, rollouts and the on-policy loop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn

from retrograd.agents.a2c import A2CLoss
from retrograd.agents.baselines import NullLearner
from retrograd.agents.impala import SummedLoss
from retrograd.agents.policy import PolicyAgent, PolicyLearner, PolicyLoss, Sampling
from retrograd.agents.ppo import PPOLoss
from retrograd.agents.pqn import PQNAgent
from retrograd.build.halves import make_player
from retrograd.build.hardware import make_scaler, place
from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.schedules import Schedule
from retrograd.core.types import ContinuousActions, EnvSpec
from retrograd.networks.optimizers import TensorFlowRMSprop, make_adam
from retrograd.networks.policy import make_actor_critic
from retrograd.replay import RolloutBuffer
from retrograd.training.loop import Loop
from retrograd.training.on_policy import on_policy
from retrograd.training.run import Run

if TYPE_CHECKING:
    from retrograd.build.builder import Builder

UPDATE_COLUMNS = (
    "step",
    "env_frames",
    "loss",
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "clip_fraction",
    "explained_variance",
    "grad_norm",
    "learning_rate",
    "return_mean_100",
    "length_mean_100",
)


def make_agent(builder: Builder, spec: EnvSpec) -> Agent:
    config = builder.config
    agent = config["agent"]
    check_policy(builder, spec)
    torch.manual_seed(builder.streams.integer("network"))
    network = make_actor_critic(
        spec.obs,
        spec.action,
        shared=agent["network"] == "shared",
        channels_last=config["hardware"]["channels_last"],
        encoder_kind=agent["encoder"],
        standardize=agent.get("standardize_pixels", False),
    )
    place(builder, network)
    return PolicyAgent(
        network,
        make_learner(builder, network, spec),
        make_sampling(builder),
        minibatches=agent.get("minibatches", 1),
        minibatch_rng=builder.streams["minibatches"],
    )


def make_loop(builder: Builder, agent: Agent, envs: VecEnv, run: Run) -> Loop:
    assert isinstance(agent, PolicyAgent | NullLearner)
    return make_rollout_loop(builder, agent, envs, run, returns_lambda=builder.config["agent"]["gae_lambda"])


def make_rollout_loop(
    builder: Builder, agent: PolicyAgent | PQNAgent | NullLearner, envs: VecEnv, run: Run, *, returns_lambda: float
) -> Loop:
    """Play a rollout, learn from it, forget it."""
    values = builder.config["agent"]
    rollouts = RolloutBuffer(
        values["rollout_steps"],
        envs.num_envs,
        gamma=values["gamma"],
        gae_lambda=returns_lambda,
        reward_ends_sum=values.get("reward_ends_sum", False),
        **builder.staging(),
    )
    player = make_player(agent, envs, run)
    begin = partial(on_policy, agent, envs, rollouts, run, value_of=agent.values, player=player)
    return Loop(begin, player=player, parts={"rollouts": rollouts})


def check_policy(builder: Builder, spec: EnvSpec) -> None:
    """What is impossible together, before anything is made."""
    agent, num_envs = builder.config["agent"], builder.config["training"]["num_envs"]
    if isinstance(spec.action, ContinuousActions) and len(spec.action.low.shape) != 1:
        raise UsageError(
            f"agent={agent['name']} needs actions in one row of numbers; {spec.name} has {spec.action.low.shape}"
        )
    rollout = agent["rollout_steps"] * num_envs
    if agent.get("minibatches", 1) > rollout:
        raise UsageError(
            f"agent.minibatches={agent['minibatches']} must not exceed the {rollout} steps of a rollout "
            f"(agent.rollout_steps={agent['rollout_steps']} × training.num_envs={num_envs})"
        )


def make_learner(builder: Builder, network: nn.Module, spec: EnvSpec) -> PolicyLearner:
    agent, preset = builder.config["agent"], builder.config["preset"]
    scaler, split = make_scaler(builder), agent.get("critic_optimizer") == "own"
    if split and scaler is not None:
        raise UsageError(
            "agent.critic_optimizer=own needs gradients that are not scaled: "
            "hardware.autocast must be null or bfloat16, not float16"
        )
    return PolicyLearner(
        network,
        make_loss(builder, spec),
        make_optimizer(builder, network),
        lr=builder.over_run(spec, preset["lr"], preset["lr_end"]),
        epochs=agent.get("epochs", 1),
        max_grad_norm=agent["max_grad_norm"],
        target_kl=agent.get("target_kl"),
        adaptive_kl=make_adaptive_kl(builder, spec),
        scaler=scaler,
        critic_optimizer=make_optimizer(builder, network) if split else None,
    )


def make_adaptive_kl(builder: Builder, spec: EnvSpec) -> Schedule | None:
    return None if builder.config["agent"].get("adaptive_kl") is None else builder.falling(spec, "adaptive_kl")


def make_loss(builder: Builder, spec: EnvSpec) -> PolicyLoss:
    agent = builder.config["agent"]
    entropy = builder.falling(spec, "entropy_coef")
    if agent["kind"] in ("a2c", "a3c"):
        return A2CLoss(entropy, agent["value_coef"], agent["normalize_advantage"])
    if agent["kind"] == "impala":
        return SummedLoss(A2CLoss(entropy, agent["value_coef"], normalize_advantage=False))
    return PPOLoss(
        clip_range=builder.falling(spec, "clip_range"),
        entropy_coef=entropy,
        value_coef=agent["value_coef"],
        value_clip=agent["value_clip"],
        normalize_advantage=agent["normalize_advantage"],
    )


def make_optimizer(builder: Builder, network: nn.Module) -> torch.optim.Optimizer:
    preset, params = builder.config["preset"], list[torch.Tensor](network.parameters())
    fused = builder.config["hardware"]["fused_optimizer"]
    if preset["optimizer"] == "tf_rmsprop":
        return TensorFlowRMSprop(params, preset["lr"], preset["rmsprop_decay"], preset["rmsprop_eps"], fused=fused)
    return make_adam(params, lr=preset["lr"], eps=preset["adam_eps"], fused=fused)


def make_sampling(builder: Builder) -> Sampling:
    return Sampling(
        builder.streams["exploration"],
        builder.streams["evaluation"],
        sample_in_evaluation=builder.config["agent"]["eval_policy"] == "sample",
    )
