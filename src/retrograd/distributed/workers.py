"""Asynchronous workers: each a process with its own environments, all learning on the same weights.

A worker runs the on-policy loop of every other agent; what is asynchronous is its learner. The first process plays
nothing: it counts, passes reports on and keeps a copy of the weights for evaluation and checkpoints. Which worker
comes first is up to the machine, so two runs of one seed differ.
"""

from __future__ import annotations

import queue
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import multiprocessing

from retrograd.agents.policy import PolicyAgent
from retrograd.core.errors import FailureGate, RetrogradError
from retrograd.core.protocols import VecEnv
from retrograd.core.types import Array, Episode, Update
from retrograd.distributed.shared import SharedParameters
from retrograd.training.on_policy import Rollouts, on_policy
from retrograd.training.run import Plan, Run

REPORT_SECONDS = 0.5  # between two reports of a worker's losses
POLL_SECONDS = 0.05
STOP_SECONDS = 10.0


@dataclass(frozen=True)
class WorkerParts:
    """What one worker plays and learns with."""

    agent: PolicyAgent
    envs: VecEnv
    rollouts: Rollouts
    rollout_steps: int


# made inside the worker's process: (number of the worker, shared weights, what all have played)
MakeParts = Callable[[int, SharedParameters, Callable[[], int]], WorkerParts]


@dataclass(frozen=True)
class _Failure:
    """A worker's last words."""

    worker: int
    gate: bool
    text: str
    batch: dict[str, Array] = field(default_factory=dict)  # what a gate closed on


@dataclass(frozen=True)
class _Wires:
    """What a worker has in common with the others."""

    shared: SharedParameters
    counter: Any  # steps of all workers
    reports: Any
    stop: Any
    total_steps: int


def _error(failure: _Failure) -> RetrogradError:
    if failure.gate:
        return FailureGate(f"{failure.text}, in worker {failure.worker}", batch=failure.batch)
    return RetrogradError(f"worker {failure.worker} failed: {failure.text}")


class Team:
    """The processes of one run; ``stop`` ends them, whatever happened."""

    def __init__(self, make_parts: MakeParts, workers: int, shared: SharedParameters, run: Run, context: Any) -> None:
        self._wires = _Wires(
            shared, context.Value("q", run.step), context.Queue(), context.Event(), run.plan.total_steps
        )
        self._processes = [
            context.Process(target=work, args=(number, make_parts, self._wires), daemon=True)
            for number in range(workers)
        ]
        for process in self._processes:
            process.start()

    @property
    def step(self) -> int:
        return int(self._wires.counter.value)

    def reports(self) -> Iterator[Episode | dict[str, float]]:
        """What came in; waits a moment for the first. A worker that failed ends the run."""
        timeout = POLL_SECONDS
        while True:
            try:
                report = self._wires.reports.get(timeout=timeout)
            except queue.Empty:
                break
            timeout = 0.0
            if isinstance(report, _Failure):
                raise _error(report)
            yield report
        for number, process in enumerate(self._processes):
            if process.exitcode not in (None, 0):
                raise RetrogradError(f"worker {number} ended with exit code {process.exitcode}")

    def stop(self) -> None:
        self._wires.stop.set()
        deadline = time.monotonic() + STOP_SECONDS
        while any(process.is_alive() for process in self._processes) and time.monotonic() < deadline:
            try:  # a worker cannot leave while its reports fill the pipe
                self._wires.reports.get(timeout=POLL_SECONDS)
            except queue.Empty:
                continue
        for process in self._processes:
            if process.is_alive():
                process.terminate()
            process.join()


def asynchronous(
    run: Run,
    make_shared: Callable[[Any], SharedParameters],
    take_over: Callable[[SharedParameters], None],
    make_parts: MakeParts,
    *,
    workers: int,
) -> Iterator[None]:
    """Yields whenever the workers have played on, after ``take_over`` took the weights of that moment."""
    context = multiprocessing.get_context("spawn")  # a forked torch may hang on locks of threads that are not there
    shared = make_shared(context)
    team = Team(make_parts, workers, shared, run, context)
    try:
        while not run.spent(run.step):
            for report in team.reports():
                if isinstance(report, Episode):
                    run.played([report], team.step)
                else:
                    run.learned(Update(dict(report)))
            played = team.step - run.step
            if played:
                run.advance(played)
                take_over(shared)
                yield
    finally:
        team.stop()


def work(number: int, make_parts: MakeParts, wires: _Wires) -> None:
    """The life of one worker."""
    torch.set_num_threads(1)  # workers are as many as there are cores: more threads would only get in their way
    try:
        _play(number, make_parts, wires)
    except KeyboardInterrupt:
        pass  # the first process has been interrupted, too, and says so
    except FailureGate as failure:
        wires.reports.put(_Failure(number, True, str(failure), failure.batch))
    except Exception:
        wires.reports.put(_Failure(number, False, traceback.format_exc()))


def _play(number: int, make_parts: MakeParts, wires: _Wires) -> None:
    counter = wires.counter
    parts = make_parts(number, wires.shared, lambda: int(counter.value))
    reporter = _Reporter(wires.reports)
    plan = Plan(sys.maxsize, 1, sys.maxsize, sync_every_steps=parts.rollout_steps * parts.envs.num_envs)
    run = Run(
        plan,
        on_episode=lambda episode, *_: wires.reports.put(replace(episode, row=number)),
        on_update=reporter.take,
    )
    try:
        for _ in on_policy(parts.agent, parts.envs, parts.rollouts, run, value_of=parts.agent.values):
            run.take_due()
            with counter.get_lock():
                counter.value += parts.envs.num_envs
            if wires.stop.is_set() or counter.value >= wires.total_steps:
                run.stop_requested = True
    finally:
        parts.envs.close()


class _Reporter:
    """Sends the figures of an update now and then: all of them would be more than the updates cost."""

    def __init__(self, reports: Any) -> None:
        self._reports = reports
        self._due = time.monotonic()

    def take(self, update: Update) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + REPORT_SECONDS
            self._reports.put({name: float(figure) for name, figure in update.metrics.items()})
