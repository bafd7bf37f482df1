"""Double-buffered playing: one half of the rows acts while the other half is emulated.

The first half sends its next actions before the second half's outcome is waited for, so that policy and emulators work
at the same time. At the edge of a rollout, and wherever something else is due, it does not go ahead: no step is played
with the weights of an earlier rollout. Decisions are made in the order of the halves, and depend on nothing else.

Learning off policy has no use for it: there the learner works while the emulators do.
"""

from __future__ import annotations

from typing import Protocol

from retrograd.core.protocols import Agent, VecEnv
from retrograd.training.player import Player
from retrograd.training.run import Run


class TwoHalves(VecEnv, Protocol):
    halves: tuple[VecEnv, VecEnv]  # alike, the first one's rows in front


class HalvesPlayer(Player):
    """A player whose first half may be one step ahead."""

    def __init__(self, agent: Agent, envs: TwoHalves, run: Run) -> None:
        super().__init__(agent, envs, run, envs.halves)

    def receive(self) -> None:
        """Receive the first half and let it go ahead, if nothing is due that would stop it; then the second."""
        first, second = self._groups
        if not second.in_flight:
            return  # whoever saved the run has received it already
        acted = self.acted + self.envs.num_envs
        first.receive(acted)
        played = first.take()
        if not (self.run.spent(acted) or self.run.pauses(acted)):
            first.send(acted)
        second.receive(acted)
        self._join([played, second.take()])
