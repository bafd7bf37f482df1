"""Asynchronous workers: each a process with its own environments, all learning on the same weights.

A worker runs the on-policy loop of every other agent; what is asynchronous is its learner. The first process plays
nothing: it counts, passes reports on and keeps a copy of the weights for evaluation and checkpoints. Which worker
comes first is up to the machine, so two runs of one seed differ.

Nothing is shared that a killed worker could keep from the others for ever: each has a pipe of its own, flags and
counters are read without a lock, and the lock of the weights is waited for no longer than a while.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Any

import torch
from torch import multiprocessing

from retrograd.core.errors import FailureGate, RetrogradError
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.signals import leave_signals_to_first_process, signals_held
from retrograd.core.types import Array, Episode, Update
from retrograd.distributed.shared import SharedParameters, SharedWeights
from retrograd.training.on_policy import Rollouts, on_policy
from retrograd.training.run import Plan, Run

log = logging.getLogger(__name__)

REPORT_SECONDS = 0.5  # between two reports of a worker's losses
POLL_SECONDS = 0.05
STOP_SECONDS = 10.0


@dataclass(frozen=True)
class WorkerParts:
    """What one worker plays and learns with."""

    agent: Agent
    envs: VecEnv
    rollouts: Rollouts
    rollout_steps: int
    value_of: Callable[..., Any]


@dataclass(frozen=True)
class Wires:
    """What connects a worker to the others."""

    worker: int
    shared: Any  # SharedWeights or SharedParameters, as the worker's parts want it
    counter: Any  # steps of all workers
    reports: Connection
    stop: Any  # not 0: come to an end
    total_steps: int

    def global_step(self) -> int:
        return int(self.counter.get_obj().value)

    def stopping(self) -> bool:
        return bool(self.stop.value)

    def orphaned(self) -> bool:
        """Whether the first process is gone: asked by a worker that waits; one that plays finds its pipe broken."""
        parent = multiprocessing.parent_process()
        return parent is not None and not parent.is_alive()


MakeParts = Callable[[Wires], WorkerParts]  # called inside the worker's process


@dataclass(frozen=True)
class _Failure:
    """A worker's last words."""

    worker: int
    gate: bool
    text: str
    batch: dict[str, Array] = field(default_factory=dict)  # what a gate closed on


def _error(failure: _Failure) -> RetrogradError:
    if failure.gate:
        return FailureGate(f"{failure.text}, in worker {failure.worker}", batch=failure.batch)
    return RetrogradError(f"worker {failure.worker} failed: {failure.text}")


class Team:
    """The processes of one run; ``stop`` ends them, whatever happened."""

    def __init__(
        self,
        make_parts: MakeParts,
        workers: int,
        shared: SharedWeights,
        context: Any,
        *,
        step: int = 0,
        total_steps: int = sys.maxsize,
    ) -> None:
        self._counter, self._stop = context.Value("q", step), context.Value("b", 0, lock=False)
        self._readers: list[Connection] = []
        self.processes: list[Any] = []
        # at the end of the program before multiprocessing's own farewell, which waits for those that ignore SIGTERM
        self._finalizer = Finalize(self, _kill, (self.processes,), exitpriority=0)
        try:
            for number in range(workers):
                reader, writer = context.Pipe(duplex=False)
                wires = Wires(number, shared, self._counter, writer, self._stop, total_steps)
                process = context.Process(target=work, args=(make_parts, wires), daemon=True)
                with signals_held():
                    process.start()
                writer.close()  # the worker has it: without it the pipe ends
                self._readers.append(reader)
                self.processes.append(process)
        except BaseException:
            self.stop()
            raise

    @property
    def step(self) -> int:
        return int(self._counter.get_obj().value)

    def reports(self, run: Run) -> Iterator[Any]:
        """What came in; waits a moment for the first. A worker that failed or is gone ends the run."""
        timeout = POLL_SECONDS
        while reports := self._receive(timeout):
            timeout = 0.0
            for report in reports:
                if isinstance(report, _Failure):
                    raise _error(report)
                yield report
        for number, process in enumerate(self.processes):
            # what asked the run to stop may have ended workers, too; nothing that is saved depends on them
            if process.exitcode not in (None, 0) and not run.stop_requested:
                raise RetrogradError(f"worker {number} ended with exit code {process.exitcode}")

    def stop(self) -> None:
        self._stop.value = 1
        deadline = time.monotonic() + STOP_SECONDS
        try:
            while any(process.is_alive() for process in self.processes) and time.monotonic() < deadline:
                for report in self._receive(POLL_SECONDS):  # a worker cannot leave while its reports fill the pipe
                    if isinstance(report, _Failure):  # too late to stop the run, which has ended
                        log.warning("%s", _error(report))
        finally:
            self._finalizer()
        for reader in self._readers:
            reader.close()
        self._readers = []

    def _receive(self, timeout: float) -> list[Any]:
        """At most one report of each worker."""
        if not self._readers:
            time.sleep(timeout)
            return []
        received = []
        for reader in wait(self._readers, timeout):
            assert isinstance(reader, Connection)
            try:
                received.append(reader.recv())
            except (EOFError, OSError):  # it has left, or was killed in the middle of a word
                self._readers.remove(reader)
                reader.close()
        return received


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
    with signals_held():  # what is shared is watched over by a process of its own
        shared = make_shared(context)
    team = Team(make_parts, workers, shared, context, step=run.step, total_steps=run.plan.total_steps)
    try:
        while not run.spent(run.step) and not run.stop_requested:
            for report in team.reports(run):
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


def work(make_parts: MakeParts, wires: Wires) -> None:
    """The life of one worker."""
    leave_signals_to_first_process()
    torch.set_num_threads(1)  # workers are as many as there are cores: more threads would only get in their way
    try:
        _play(make_parts, wires)
    except FailureGate as failure:
        _tell(wires, _Failure(wires.worker, True, str(failure), dict(failure.batch)))
    except Exception:
        _tell(wires, _Failure(wires.worker, False, traceback.format_exc()))


def _tell(wires: Wires, failure: _Failure) -> None:
    with suppress(OSError):  # the first process is gone, and with it whoever would want to know
        wires.reports.send(failure)


def _play(make_parts: MakeParts, wires: Wires) -> None:
    counter = wires.counter
    parts = make_parts(wires)
    reporter = _Reporter(wires.reports)
    plan = Plan(sys.maxsize, 1, sys.maxsize, sync_every_steps=parts.rollout_steps * parts.envs.num_envs)
    run = Run(
        plan,
        on_episode=lambda episode, *_: wires.reports.send(replace(episode, row=wires.worker)),
        on_update=reporter.take,
    )
    try:
        for _ in on_policy(parts.agent, parts.envs, parts.rollouts, run, value_of=parts.value_of):
            run.take_due()
            with counter.get_lock():
                counter.value += parts.envs.num_envs
            if wires.stopping() or wires.global_step() >= wires.total_steps:
                break
    finally:
        parts.envs.close()


def _kill(processes: list[Any]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
        process.join()


class _Reporter:
    """Sends the figures of an update now and then: all of them would be more than the updates cost."""

    def __init__(self, reports: Connection) -> None:
        self._reports = reports
        self._due = time.monotonic()

    def take(self, update: Update) -> None:
        now = time.monotonic()
        if update.metrics and now >= self._due:
            self._due = now + REPORT_SECONDS
            self._reports.send({name: float(figure) for name, figure in update.metrics.items()})
