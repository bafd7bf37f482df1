"""Playing: the only place that knows that episodes end.

The overlap: actions are sent, the *previous* step is handed to the learner while the emulators run in
their own native threads, then the outcome is received. One Python thread, no queue, deterministic; a
step costs max(emulate, learn) instead of their sum. Where a pause is due (an evaluation, a checkpoint)
the previous step is handed over first, so that nothing is in flight and resuming stays exact.
"""

from __future__ import annotations

from collections.abc import Iterator

from retrograd.core.gates import require_finite_decision, require_finite_outcome
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import Step
from retrograd.training.run import Run
from retrograd.training.state import reset_rows
from retrograd.training.timing import REST


def collect(agent: Agent, envs: VecEnv, run: Run) -> Iterator[Step]:
    """Vector steps until the run's budget is spent; whoever takes one calls ``run.advance``."""
    obs = envs.observe()
    fresh = agent.initial_state(envs.num_envs)
    state = fresh
    pending: Step | None = None
    acted = run.step
    timer = run.timer
    while not run.spent(acted):
        if pending is not None and run.pauses(acted):
            yield pending
            pending = None
        timer.lap(REST)
        decision = agent.act(obs, state, step=acted, explore=True)
        require_finite_decision(acted, decision.action, decision.extras)
        timer.lap("act")
        envs.send(decision.action)
        timer.lap("emulate")
        if pending is not None:
            yield pending
            timer.lap(REST)
        outcome = envs.recv()
        timer.lap("emulate")
        acted += envs.num_envs
        require_finite_outcome(acted, outcome)
        run.played(outcome.episodes, acted)
        pending = Step(
            obs=obs,
            action=decision.action,
            reward=outcome.reward,
            terminated=outcome.terminated,
            truncated=outcome.truncated,
            reset=outcome.reset,
            next_obs=outcome.next_obs,
            extras=decision.extras,
        )
        obs = outcome.obs
        state = reset_rows(decision.state, fresh, outcome.reset)
    if pending is not None:
        yield pending
