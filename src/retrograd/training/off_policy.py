"""The off-policy loop: play, remember, learn at a fixed ratio of updates to steps."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from retrograd.core.cadence import due
from retrograd.core.protocols import Agent, Replay, VecEnv
from retrograd.training.collect import collect
from retrograd.training.player import Player
from retrograd.training.run import Run


def off_policy(
    agent: Agent,
    envs: VecEnv,
    replay: Replay,
    run: Run,
    *,
    batch_size: int,
    start_size: int,
    updates_per_step: Fraction,
    player: Player | None = None,
) -> Iterator[None]:
    """Yields after each vector step has been remembered and learned from."""
    for step in collect(agent, envs, run, player):
        before = run.step
        run.advance(envs.num_envs)
        replay.add(step)
        run.timer.lap("sample")
        if replay.steps_added >= start_size and len(replay):  # windows of several steps are complete later
            for _ in range(due(before, run.step, updates_per_step)):
                batch = replay.sample(batch_size, step=run.step)
                run.timer.lap("sample")
                update = agent.update(batch, step=run.step)
                run.timer.lap("update")
                if update.priority is not None:
                    replay.update(batch.index, update.priority)
                    run.timer.lap("sample")
                run.learned(update)
        yield
