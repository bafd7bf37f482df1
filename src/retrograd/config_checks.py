"""Keys of a config that are fine alone and impossible, or without meaning, together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from retrograd import schema
from retrograd.core.errors import UsageError


def check_together(values: Mapping[str, Any]) -> None:
    """Keys that are fine alone and impossible together."""
    agent, replay, preset = values["agent"], values["replay"], values["preset"]
    problems = []
    if agent["kind"] == "value":
        capacity = replay["capacity"]
        if agent["batch_size"] > capacity:
            problems.append(f"agent.batch_size={agent['batch_size']} must not exceed replay.capacity={capacity}")
        if agent["replay_start_size"] > capacity:
            problems.append(
                f"agent.replay_start_size={agent['replay_start_size']} must not exceed replay.capacity={capacity}"
            )
        if capacity < 2 * values["training"]["num_envs"] * (agent["frame_stack"] + 2):
            problems.append(
                f"replay.capacity={capacity} is too small for training.num_envs={values['training']['num_envs']}"
            )
        problems += _without_meaning(agent, preset)
    if agent.get("adaptive_kl_end") is not None and agent["adaptive_kl"] is None:
        problems.append(f"agent.adaptive_kl_end={agent['adaptive_kl_end']} has no meaning without agent.adaptive_kl")
    if agent.get("fall") == "geometric" and agent["entropy_coef_end"] is not None:
        problems += [
            f"agent.fall=geometric takes the same factor in the same time, and agent.{key}=0 has none: "
            "it must be above 0, or agent.fall=linear"
            for key in ("entropy_coef", "entropy_coef_end")
            if agent[key] == 0
        ]
    if values["training"]["null_learner"] and agent["kind"] not in schema.NULL_LEARNER_KINDS:
        problems.append(
            f"training.null_learner=true has no use with agent.kind={agent['kind']}: "
            f"it is for {', '.join(schema.NULL_LEARNER_KINDS)}"
        )
    problems += _pairs_at_odds(preset, replay)
    if values["run_name"] is not None and not re.fullmatch(r"[\w][\w.+-]*", values["run_name"]):
        problems.append(f"run_name={values['run_name']!r} must be letters, digits and . _ + - and name one folder")
    if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", values["hardware"]["device"]):
        problems.append(f"hardware.device={values['hardware']['device']!r} must be auto, cpu, mps, cuda or cuda:N")
    if problems:
        raise UsageError("\n".join(problems))


def _pairs_at_odds(preset: Mapping[str, Any], replay: Mapping[str, Any]) -> list[str]:
    """Numbers that only make sense beside each other."""
    problems = []
    if "epsilon_end" in preset and preset["epsilon_end"] > preset["epsilon_start"]:
        problems.append(
            f"preset.epsilon_end={preset['epsilon_end']} must not exceed preset.epsilon_start={preset['epsilon_start']}"
        )
    if preset.get("optimizer", "").endswith("_rmsprop") and "rmsprop_momentum" in preset:
        decay, momentum = preset["rmsprop_decay"], preset["rmsprop_momentum"]
        if decay != momentum:  # the mean of squares is then less than the square of the mean at times: no root of it
            problems.append(
                f"preset.rmsprop_momentum={momentum} must equal preset.rmsprop_decay={decay}: "
                "the variance is a difference of two averages that decay alike"
            )
    if "beta_start" in replay and replay["beta_start"] > replay["beta_end"]:
        problems.append(
            f"replay.beta_start={replay['beta_start']} must not exceed replay.beta_end={replay['beta_end']}"
        )
    return problems


def _without_meaning(agent: Mapping[str, Any], preset: Mapping[str, Any]) -> list[str]:
    """Switches of a value-based agent that say nothing beside another one, each with the reason."""
    kind, problems = agent["distributional"], []
    if agent["munchausen"] and agent["double"]:
        problems.append(
            "agent.double=true has no meaning with agent.munchausen=true: all next actions count, none is chosen"
        )
    if kind is not None and preset["loss"] != "huber":
        problems.append(
            f"preset.loss={preset['loss']} has no meaning with agent.distributional={kind}, which brings its own loss"
        )
    if kind == "c51" and agent["v_min"] >= agent["v_max"]:
        problems.append(f"agent.v_min={agent['v_min']} must be below agent.v_max={agent['v_max']}")
    if agent["noisy_epsilon"] and not agent["noisy"]:
        problems.append("agent.noisy_epsilon=true has no meaning without agent.noisy=true: ε is used anyway")
    if agent["noise_each_step"] and not agent["noisy"]:
        problems.append("agent.noise_each_step=true has no meaning without agent.noisy=true: there is no noise to draw")
    if agent["encoder_layer_norm"] and agent["encoder"] == "impala":
        problems.append("agent.encoder_layer_norm=true has no meaning with agent.encoder=impala: it has no such layers")
    if agent["initial_weights"] is not None:
        problems += [
            f"agent.initial_weights={agent['initial_weights']} has no meaning with agent.{key}=true, whose layers "
            "begin with weights of their own"
            for key in ("noisy", "spectral_norm")
            if agent[key]
        ]
    if agent["encoder"] != "impala":
        problems += [
            f"agent.{key}={agent[key]} has no meaning without agent.encoder=impala"
            for key, unset in (("impala_scale", 1), ("impala_pool", None), ("spectral_norm", False))
            if agent[key] != unset
        ]
    return problems
