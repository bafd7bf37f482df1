"""How fast a run like this one goes on this machine: a short copy of it, with nothing logged, judged or saved."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from retrograd.build.hardware import compile_agent
from retrograd.config import Config
from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent

WARM_UP_UPDATES = 2
ASYNCHRONOUS = ("a3c", "impala")
IDLE = ("random", "constant")


@dataclass(frozen=True, slots=True)
class Pace:
    """What was seen between two updates, some seconds apart."""

    steps: int
    updates: int
    seconds: float
    phases: dict[str, float]  # seconds of emulating, acting, sampling and updating
    update_again: Callable[[], Any]  # the last update once more, on the same batch

    @property
    def steps_per_second(self) -> float:
        return self.steps / self.seconds

    def limit(self, seconds: float) -> float:
        """Steps a second if updates were all there is: the last one back to back, for so many seconds."""
        self.update_again()  # its memory is no longer in the caches
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds or not done:
            self.update_again()
            done += 1
        return self.steps / self.updates * done / (time.perf_counter() - begun)


def refuse_paceless(config: Config, what: str) -> None:
    """Agents that do not learn, or not in this process, have no updates to measure between."""
    kind = config["agent"]["kind"]
    if kind in (*ASYNCHRONOUS, *IDLE):
        why = "its workers play and learn in processes of their own" if kind in ASYNCHRONOUS else "it does not learn"
        raise UsageError(f"{what} has no use with agent.kind={kind}: {why}")


def measure_pace(config: Config, seconds: float) -> Pace:
    """Play and learn for that long or for one update, whichever is longer, after the first updates."""
    from retrograd.build.run import make_plan, open_environments
    from retrograd.training.run import Run

    small = in_small(config)
    builder, envs = open_environments(small, None)
    try:
        marks: list[tuple[int, float]] = []
        plan = replace(make_plan(small, envs.spec), total_steps=2**62)
        run = Run(plan, on_episode=lambda *_: None, on_update=lambda _: marks.append((run.step, time.perf_counter())))
        agent = builder.agent(envs.spec)
        compile_agent(builder, agent, envs.spec)
        last_update = _remember_updates(agent)
        phases: dict[str, float] = {}
        for _ in builder.loop(agent, envs, run).begin():
            run.take_due()
            if len(marks) <= WARM_UP_UPDATES:
                run.timer.take()  # of the warm-up
            elif marks[-1][1] - marks[WARM_UP_UPDATES - 1][1] >= seconds:
                phases = run.timer.take()
                break
    finally:
        envs.close()
    (first, begun), (last, ended) = marks[WARM_UP_UPDATES - 1], marks[-1]
    return Pace(
        steps=last - first,
        updates=len(marks) - WARM_UP_UPDATES,
        seconds=ended - begun,
        phases={name.removesuffix("_seconds"): value for name, value in phases.items()},
        update_again=lambda: agent.update(last_update["batch"], step=last_update["step"]),
    )


def _remember_updates(agent: Agent) -> dict[str, Any]:
    """Always what the agent was last asked to learn from."""
    last: dict[str, Any] = {}
    update = agent.update

    def remember(batch: Any, *, step: int) -> Any:
        last.update(batch=batch, step=step)
        return update(batch, step=step)

    agent.update = remember  # type: ignore[method-assign]
    return last


def in_small(config: Config) -> Config:
    """Learning begins at once, on actions of the network: what the run will be like for most of its time."""
    changes: dict[str, Any] = {
        "hardware.measure_threads": False,
        "training.warmup_random_steps": 0,
        "training.total_episodes": None,
        "training.light_eval_every_frames": None,
        "training.full_eval_every_frames": None,
        "training.eval_every_episodes": None,
        **{f"{tracker}.enabled": False for tracker in ("wandb", "mlflow", "tensorboard")},
    }
    agent, preset = config["agent"], config["preset"]
    if agent["kind"] == "value":
        rows = config["training"]["num_envs"] * (agent["frame_stack"] + agent["n_step"] + 2)
        changes["replay.capacity"] = max(4096, 4 * agent["batch_size"], 4 * rows)
        changes["agent.replay_start_size"] = agent["batch_size"]
    if "epsilon_start" in preset:
        changes["preset.epsilon_start"] = preset["epsilon_end"]
    return config.with_values(changes)
