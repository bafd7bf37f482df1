"""Playing: the only place that knows that episodes end.

The overlap: actions are sent, the *previous* step is handed to the learner while the emulators run in
their own native threads, then the outcome is received. One Python thread, no queue, deterministic; a
step costs max(emulate, learn) instead of their sum. Where a pause is due (an evaluation, the edge of a
rollout) the previous step is handed over first. A checkpoint needs no pause: it keeps that step.
"""

from __future__ import annotations

from collections.abc import Iterator

from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import Step
from retrograd.training.player import Player
from retrograd.training.run import Run
from retrograd.training.timing import REST


def collect(agent: Agent, envs: VecEnv, run: Run, player: Player | None = None) -> Iterator[Step]:
    """Vector steps until the run's budget is spent; whoever takes one calls ``run.advance``.

    ``player`` is handed in by those who want to save the run or go on from a saved one.
    """
    player = Player(agent, envs, run) if player is None else player
    player.begin()
    while not run.spent(player.acted):
        before = player.take()
        if before is not None and run.pauses(player.acted):
            yield before
            before = None
        run.timer.lap(REST)
        player.send()
        if before is not None:
            yield before
            run.timer.lap(REST)
        player.receive()
    last = player.take()
    if last is not None:
        yield last
