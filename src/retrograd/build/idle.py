"""Agents that do not learn: random, constant, and the one in a learner's place."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from retrograd.agents.baselines import ConstantAgent, NullLearner, RandomAgent
from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import ContinuousActions, EnvSpec
from retrograd.replay.null import NoReplay
from retrograd.training.loop import Loop
from retrograd.training.off_policy import off_policy
from retrograd.training.player import Player
from retrograd.training.run import Run

if TYPE_CHECKING:
    from retrograd.build.builder import Builder


def make_agent(builder: Builder, spec: EnvSpec) -> Agent:
    if builder.config["agent"]["kind"] == "random":
        return RandomAgent(spec.action, builder.streams["exploration"])
    return ConstantAgent(_constant_action(builder.config["agent"]["action"], spec))


def make_null_learner(builder: Builder, spec: EnvSpec) -> Agent:
    """In the place of the agent that was asked for: its loop, replay or rollouts stay as they are."""
    return NullLearner(spec.action, builder.streams["exploration"])


def make_loop(builder: Builder, agent: Agent, envs: VecEnv, run: Run) -> Loop:
    player = Player(agent, envs, run)
    begin = partial(
        off_policy,
        agent,
        envs,
        NoReplay(),
        run,
        batch_size=1,
        start_size=1,
        updates_per_step=Fraction(0),
        player=player,
    )
    return Loop(begin, player=player)


def _constant_action(action: int, spec: EnvSpec) -> Any:
    if isinstance(spec.action, ContinuousActions):
        return np.clip(np.full_like(spec.action.low, action), spec.action.low, spec.action.high)
    if action >= spec.action.n:
        raise UsageError(f"agent.action={action} must be from 0 to {spec.action.n - 1} in {spec.name}")
    return action
