"""Double-buffered playing, where it is asked for: two groups of rows, and the player that knows of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from retrograd.config import Config
from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent, VecEnv
from retrograd.envs.halves import Halves

if TYPE_CHECKING:
    from retrograd.training.player import Player
    from retrograd.training.run import Run

KINDS = ("ppo", "a2c", "recurrent_ppo", "pqn")


def check_halves(config: Config) -> None:
    """What double-buffered playing cannot do, before anything is made."""
    kind, training = config["agent"]["kind"], config["training"]
    if not training["double_buffered"]:
        return
    asked = "training.double_buffered=true"
    if kind not in KINDS:
        raise UsageError(
            f"{asked} has no use with agent.kind={kind}: "
            + (
                "its workers play beside each other already"
                if kind in ("a3c", "impala")
                else "it learns while others play"
            )
            + f"; it is for {', '.join(KINDS)}"
        )
    if training["num_envs"] % 2:
        raise UsageError(f"{asked} needs two halves: training.num_envs={training['num_envs']} must be even")
    if training["normalize_observations"] or training["normalize_rewards"]:
        raise UsageError(f"{asked} cannot normalize: each half would have statistics of its own")


def make_player(agent: Agent, envs: VecEnv, run: Run) -> Player:
    """The player that fits the rows."""
    from retrograd.training.halves import HalvesPlayer
    from retrograd.training.player import Player

    return HalvesPlayer(agent, envs, run) if isinstance(envs, Halves) else Player(agent, envs, run)
