"""Gymnasium rows in processes of their own, each of which may crash or hang without taking the others along.

Observations come through shared memory and the rest through a pipe in messages too small to be torn, so that a worker
killed at any moment leaves either an answer or none. Who is lost is told to the caller, who decides what its episode
was worth; ``restart`` gives the row a fresh process.
"""

from __future__ import annotations

import copy
import logging
import multiprocessing
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.util import Finalize
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector.utils import (
    CloudpickleWrapper,
    batch_space,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)

from retrograd.core.errors import RetrogradError
from retrograd.core.signals import leave_signals_to_first_process, signals_held
from retrograd.core.types import Array

Maker = Callable[[], "gymnasium.Env[Any, Any]"]
INFOS = ("lives", "episode_frame_number")  # what the rows' owner wants to know of an info
HOUR_SECONDS = 3600.0
START_SECONDS = 60.0  # a process and its environment may take so long to begin
LOOKS = 4  # waits without an answer before a row is given up
LAST_WORDS = 4000  # characters of a traceback

log = logging.getLogger(__name__)


@dataclass
class _Worker:
    process: Any
    pipe: Connection


@dataclass(frozen=True)
class RowStep:
    """What the workers answered; rows in ``lost`` have none, and zeros in the other arrays."""

    obs: Any
    reward: Array  # [N] float64
    terminated: Array  # [N] bool
    truncated: Array  # [N] bool
    info: dict[str, Array]  # [N] values, and [N] masks under "_" + name
    lost: Array  # [N] bool


class WorkerRows:
    """N processes. ``restarts`` counts those that had to be replaced; too many within an hour are an error."""

    def __init__(
        self,
        makers: Sequence[Maker],
        *,
        name: str,
        timeout_seconds: float,
        restarts_per_hour: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name, self.restarts = name, 0
        self._makers = list(makers)
        self._timeout_seconds, self._restarts_per_hour, self._clock = timeout_seconds, restarts_per_hour, clock
        self._recent: deque[float] = deque()
        self._reasons: dict[int, str] = {}
        self._fresh: set[int] = set()  # rows that have yet to give their first answer
        # a forked copy of a process with math threads may deadlock; the fork server has none
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])
        example = makers[0]()
        self.single_observation_space, self.single_action_space = example.observation_space, example.action_space
        example.close()
        count = len(makers)
        self._actions = batch_space(self.single_action_space, count)
        context: Any = self._context
        with signals_held():  # what is shared is watched over by a process of its own
            self._shared = create_shared_memory(self.single_observation_space, count, context)
        self._view = read_from_shared_memory(self.single_observation_space, self._shared, count)
        self._workers: list[_Worker] = []
        # at the end of the program before multiprocessing's own farewell, which waits for those that ignore SIGTERM
        self._finalizer = Finalize(self, _kill, (self._workers,), exitpriority=0)
        self._workers += [self._begin(row) for row in range(count)]

    def reset(self, rows: Array, seeds: Array, *, unseeded: int) -> RowStep:
        """Begin new games in ``rows``; the others keep their observation."""
        for row in np.flatnonzero(rows).tolist():
            self._send(row, "reset", None if seeds[row] == unseeded else int(seeds[row]))
        return self._gather(np.flatnonzero(rows).tolist())

    def step_async(self, actions: Array) -> None:
        for row, action in enumerate(iterate(self._actions, actions)):
            self._send(row, "step", action)

    def step_wait(self) -> RowStep:
        return self._gather(range(len(self._workers)))

    def restart(self, rows: Array) -> None:
        """Replace the processes of ``rows``; they have to be reset afterwards."""
        for row in np.flatnonzero(rows).tolist():
            reason = self._reasons.pop(row, "unknown reason")
            self._count(row, reason)
            log.warning("row %d of %s is started anew, its episode is cut: %s", row, self.name, reason)
            _kill([self._workers[row]])
            self._workers[row] = self._begin(row)

    def close(self) -> None:
        """End all processes, those that answer politely."""
        for row in range(len(self._workers)):
            self._send(row, "close", None)
        deadline = self._clock() + min(self._timeout_seconds, 5.0)
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - self._clock()))
        self._finalizer()

    def _begin(self, row: int) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=serve,
            args=(row, CloudpickleWrapper(self._makers[row]), theirs, self._shared),
            name=f"{self.name} row {row}",
            daemon=True,
        )
        with signals_held():
            process.start()
        theirs.close()
        self._fresh.add(row)
        return _Worker(process, ours)

    def _count(self, row: int, reason: str) -> None:
        now = self._clock()
        self._recent.append(now)
        while self._recent and self._recent[0] < now - HOUR_SECONDS:
            self._recent.popleft()
        if len(self._recent) > self._restarts_per_hour:
            raise RetrogradError(
                f"environment row {row} of {self.name} failed, and {self._restarts_per_hour} restarts an hour are "
                f"allowed (hardware.worker_restarts_per_hour): {reason}"
            )
        self.restarts += 1

    def _send(self, row: int, command: str, data: Any) -> None:
        with suppress(OSError):  # it is dead: waiting for its answer will tell
            self._workers[row].pipe.send((command, data))

    def _gather(self, rows: Iterable[int]) -> RowStep:
        count = len(self._workers)
        reward, lost = np.zeros(count, np.float64), np.zeros(count, bool)
        over, cut = np.zeros(count, bool), np.zeros(count, bool)
        info: dict[str, Array] = {}
        for row, answer in self._answers(rows):
            if isinstance(answer, str):
                lost[row], self._reasons[row] = True, answer
                continue
            reward[row], over[row], cut[row], figures = answer
            for key, figure in figures.items():
                info.setdefault(key, np.zeros(count, np.int64))[row] = figure
                info.setdefault("_" + key, np.zeros(count, bool))[row] = True
        return RowStep(copy.deepcopy(self._view), reward, over, cut, info, lost)

    def _answers(self, rows: Iterable[int]) -> Iterable[tuple[int, Any]]:
        """Each row's answer as it comes, or the reason why there is none.

        Waits are counted, not the time: a process stopped by Ctrl-Z for an hour has not been waiting.
        """
        waiting: dict[Any, int] = {self._workers[row].pipe: row for row in rows}
        patience = START_SECONDS if self._fresh.intersection(waiting.values()) else 0.0
        seconds, looks = max(self._timeout_seconds, patience), 0
        while waiting and looks < LOOKS:
            ready = wait(list(waiting), seconds / LOOKS)
            looks += not ready
            for pipe in ready:
                row = waiting.pop(pipe)
                self._fresh.discard(row)
                yield row, self._receive(row)
        for row in waiting.values():
            self._fresh.discard(row)
            yield row, f"it did not answer within {seconds:g} s"

    def _receive(self, row: int) -> Any:
        worker = self._workers[row]
        try:
            return worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join(1.0)
            return f"its process ended with exit code {worker.process.exitcode}"


def serve(row: int, maker: Any, pipe: Connection, shared: Any) -> None:
    """The life of one worker. Its answers are tuples, its last words a string."""
    leave_signals_to_first_process()
    try:
        env = maker()
        space = env.observation_space
        while True:
            command, data = pipe.recv()
            if command == "close":
                env.close()
                return
            if command == "reset":
                obs, info = env.reset(seed=data)
                answer: tuple[Any, ...] = (0.0, False, False)
            else:
                obs, reward, terminated, truncated, info = env.step(data)
                answer = (float(reward), bool(terminated), bool(truncated))
            write_to_shared_memory(space, row, obs, shared)
            pipe.send((*answer, {key: int(info[key]) for key in INFOS if key in info}))
    except EOFError:
        return  # the first process is gone
    except Exception:
        pipe.send("it raised an error\n" + traceback.format_exc()[-LAST_WORDS:])


def _kill(workers: list[_Worker]) -> None:
    for worker in workers:
        if worker.process.is_alive():
            worker.process.kill()
        worker.process.join()
        worker.pipe.close()
