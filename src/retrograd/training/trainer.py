"""The trainer: runs a loop to its end, and does at each pause what is due.

It sees a loop only as an iterator of steps, so it serves every algorithm.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch

from retrograd.core.errors import CheckpointError, FailureGate, ResourceError, Stopped
from retrograd.core.gates import require_finite_state
from retrograd.core.protocols import Agent, Stateful, VecEnv
from retrograd.core.schedules import Horizon
from retrograd.tracking.console import ProgressSink
from retrograd.tracking.logger import Logger
from retrograd.training import durable
from retrograd.training.checkpoint import Checkpoint, CheckpointStore, SavedReplay
from retrograd.training.failure import dump_failure
from retrograd.training.lock import RunLock
from retrograd.training.loop import Loop
from retrograd.training.resources import MemoryWatch, SaveGuard, describe
from retrograd.training.rng import load_rng_states, rng_states
from retrograd.training.run import Due, Run
from retrograd.training.writer import Writer

log = logging.getLogger(__name__)


class Judge(Protocol):
    """Plays evaluation games; made anew each time, so that a resumed run judges alike."""

    def evaluate(self, *, episodes: int, step: int) -> dict[str, Any]: ...
    def record(self, path: Path, *, step: int) -> Any: ...


class ReplayFiles(Protocol):
    """Saves a replay in files of its own: what is copied at once, and a function that writes the rest."""

    def prepare(self, replay: Any) -> Callable[[], SavedReplay]: ...
    def load(self, replay: Any, name: str | None = None) -> None: ...


class Trainer:
    """One run of one agent in one folder."""

    def __init__(
        self,
        agent: Agent,
        envs: VecEnv,
        run: Run,
        loop: Loop,
        *,
        folder: Path,
        config_yaml: str,
        logger: Logger,
        progress: ProgressSink,
        judge: Judge,
        store: CheckpointStore,
        streams: Stateful,
        light_episodes: int,
        full_episodes: int,
        record_video: bool,
        replay_files: ReplayFiles | None = None,
        horizon: Horizon | None = None,
        lock: RunLock | None = None,
        memory: MemoryWatch | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.agent, self.envs, self.run, self.folder = agent, envs, run, folder
        self.judge, self.store, self.streams = judge, store, streams
        self.logger, self.progress, self.config_yaml = logger, progress, config_yaml
        self.light_episodes, self.full_episodes, self.record_video = light_episodes, full_episodes, record_video
        self.loop, self._steps = loop, loop.begin()
        self.replay_files, self._horizon, self._lock = replay_files, horizon, lock
        self._writer, self._guard = Writer(), SaveGuard()
        self._memory = memory if memory is not None else MemoryWatch(None)
        self._short: str | None = None  # of memory: why the run has to stop
        self._owed: Sequence[str] = ()  # evaluations that are due, or were when a signal interrupted the first of them
        self._saved_step = 0
        self._clock = clock
        self._started = self._logged_at = clock()
        self._logged_step = run.step
        self._paused_seconds = 0.0
        self._final: Checkpoint | None = None  # of a run that had ended already when it was loaded
        self._ended = False

    def train(self) -> dict[str, Any]:
        """Go on until the budget is spent; returns the summary, also written as summary.json.

        A run that was asked to stop saves a checkpoint and returns where; it has no summary yet. The folder is locked
        while it trains.
        """
        if self._lock is not None:
            self._lock.acquire()
        try:
            self._evaluate_owed()
            while not self.run.stop_requested and self.advance():
                pass
            return self._stop() if self.run.stop_requested else self._finish()
        except Stopped:  # in the middle of the final evaluation
            return self._stop()
        except FailureGate as failure:
            self._dump(failure)
            raise
        finally:
            self.logger.save_logs()
            self._release()

    def advance(self) -> bool:
        """One vector step and what it made due; False when the budget is spent."""
        for _ in self._steps:
            due = self.run.take_due()
            if due.log:
                self._log()
            if due.pause:
                self._pause(due)
            if self._save_is_due(due):
                self._begin_save()
            if self._writer.failed:
                self._await_save()
            self._short = self._memory.problem()
            if self._short is not None:
                self.run.stop_requested, self.run.stop_reason = True, "short of memory"
            if self.run.paused:
                self.run.stop_requested, self.run.stop_reason = True, "come to its pause"
            self.progress.advance(self.run.step)
            return True
        return False

    def train_episode(self) -> None:
        """Go on until at least one more game has ended."""
        episodes = self.run.episodes
        while self.run.episodes == episodes and self.advance():
            pass

    def begin_at(self, step: int) -> None:
        """Count on from a step that another run has reached."""
        self.run.begin_at(step)
        self._logged_at, self._logged_step = self._clock(), step

    def extend(self, total_steps: int, config_yaml: str) -> None:
        """Allow the run to go on to ``total_steps``; schedules that span the run are stretched with it."""
        self.run.plan = replace(self.run.plan, total_steps=total_steps)
        if self._horizon is not None:
            self._horizon.steps = total_steps
        self.config_yaml = config_yaml
        durable.write_text(self.folder / ".hydra" / "config.yaml", config_yaml)
        self._final, self._ended = None, False
        self._close_loop()
        self._steps = self.loop.begin()

    def evaluate(self, eval_type: str = "full", episodes: int | None = None) -> dict[str, Any]:
        """Play unclipped full games, log the scores and return their summary."""
        return self._evaluate(eval_type, episodes)[0]

    def _evaluate(
        self, eval_type: str, episodes: int | None = None, *, film: bool = False
    ) -> tuple[dict[str, Any], Path | None]:
        """The summary, and a video if one was asked for and came about; on a signal neither, and nothing is logged."""
        if episodes is None:
            episodes = self.light_episodes if eval_type == "light" else self.full_episodes
        begun, before = self._clock(), self._random_states()
        try:
            summary = self.judge.evaluate(episodes=episodes, step=self.run.step)
            video = self._video() if film else None
        except Stopped:  # as if it had not begun: it will be played again, with the same random numbers
            self._load_random_states(before)
            raise
        self.logger.log_evaluation(summary, step=self.run.step, env_frames=self.run.env_frames, eval_type=eval_type)
        if video is not None:
            self.logger.log_video(video, step=self.run.step)
        self._paused_seconds += self._clock() - begun
        return summary, video

    def _random_states(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """All that games of an evaluation change and the training goes on with."""
        noise = self.agent.parts.get("noise")
        return rng_states(self.streams), None if noise is None else noise.state_dict()

    def _load_random_states(self, states: tuple[dict[str, Any], dict[str, Any] | None]) -> None:
        load_rng_states(self.streams, states[0])
        if states[1] is not None:
            self.agent.parts["noise"].load_state_dict(states[1])

    def save_checkpoint(self, summary: Mapping[str, Any] | None = None, video: Path | None = None) -> Path:
        """Write a checkpoint, on the disk when this returns; with the summary of a full evaluation also its score.
        The video, if there is one, goes into it."""
        self._begin_save(summary, video)
        begun = self._clock()
        try:
            path = self._writer.wait()
        except (OSError, CheckpointError) as error:
            raise ResourceError(
                f"the checkpoint of step {self.run.step} could not be saved: {describe(error)}; "
                "the last good checkpoint is untouched"
            ) from error
        assert path is not None
        self._paused_seconds += self._clock() - begun
        return path

    def _await_save(self) -> None:
        """Whatever is being saved is saved, or has failed: then the next save is another try, up to a limit."""
        try:
            if self._writer.wait() is not None:
                self._guard.succeeded()
        except (OSError, CheckpointError) as error:
            self._guard.failed(error, self._saved_step)

    def _begin_save(self, summary: Mapping[str, Any] | None = None, video: Path | None = None) -> None:
        """Copy the state of this moment and go on; the writer puts it on the disk meanwhile."""
        begun = self._clock()
        with durable.removed_on_error(video):  # no other save has a use for it
            self._await_save()
            job = self._prepare_save(summary, video)
        self._saved_step = self.run.step

        def write() -> Path:
            with durable.removed_on_error(video):
                return job()

        self._writer.submit(write)
        self._paused_seconds += self._clock() - begun

    def _prepare_save(self, summary: Mapping[str, Any] | None, video: Path | None) -> Callable[[], Path]:
        require_finite_state(self.run.step, {name: part.state_dict() for name, part in self.agent.parts.items()})
        parts: dict[str, Stateful | Mapping[str, Any]] = {**self.agent.parts, **self.loop.parts}
        if self.loop.player is not None:
            self.loop.player.settle()
            parts |= {"player": self.loop.player, "envs": self.envs.snapshot()}
        self.logger.save_logs()  # the rows that the checkpoint counts must be there after a power cut, too
        return self.store.prepare(
            step=self.run.step,
            env_frames=self.run.env_frames,
            parts={**parts, "run": self.run, "logger": self.logger, "trainer": self},
            rng=rng_states(self.streams),
            metrics=dict(summary or {"step": self.run.step}),
            config_yaml=self.config_yaml,
            video=video,
            score=None if summary is None else summary["mean_return"],
            replay=None if self.replay_files is None else self.replay_files.prepare(self.loop.replay),
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "wall_seconds": self._clock() - self._started,
            "finished": self._ended,
            "owed": list(self._owed),
            "torch_threads": torch.get_num_threads(),  # sums of floating point numbers depend on it
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._started = self._clock() - float(state["wall_seconds"])
        self._logged_at, self._logged_step = self._clock(), self.run.step
        owed = state.get("owed") or ()
        self._owed = (owed,) if isinstance(owed, str) else tuple(owed)  # older checkpoints name the one

    def load_finished(self, checkpoint: Checkpoint) -> None:
        """The run had ended when this was saved: its last evaluation need not be played again."""
        self._final = checkpoint

    def close(self) -> None:
        self._close_loop()
        self._writer.close()
        self.logger.close()  # and with it the progress, one of its sinks
        self.envs.close()
        self._release()

    def abandon(self) -> None:
        """Do not wait for a save that is under way, neither now nor in ``close``: for whoever must leave at once."""
        self._writer.abandon()

    def _release(self) -> None:
        """While something is being written the folder stays ours; the lock goes with the process at the latest."""
        if self._lock is not None and not self._writer.busy:
            self._lock.release()

    def _close_loop(self) -> None:
        close: Callable[[], None] | None = getattr(self._steps, "close", None)
        if close is not None:
            close()  # a loop may have processes to end

    def _save_is_due(self, due: Due) -> bool:
        asked, self.run.save_requested = self.run.save_requested, False
        # a full evaluation brings its own, and so does the end of the run
        return asked or (due.checkpoint and not due.full_eval and not self.run.spent(self.run.step))

    def _pause(self, due: Due) -> None:
        full = due.full_eval and not self.run.spent(self.run.step)  # the final one and its checkpoint come at once
        self._owed = ("light",) * due.light_eval + ("full",) * full
        self._evaluate_owed()

    def _evaluate_owed(self) -> None:
        """A signal may interrupt it: the checkpoint that is saved then remembers what is owed."""
        while self._owed:
            full = self._owed[0] == "full"
            try:
                summary, video = self._evaluate(self._owed[0], film=full)
            except Stopped:
                return
            self._owed = self._owed[1:]
            if full:
                self._begin_save(summary, video)

    def _stop(self) -> dict[str, Any]:
        print(f"retrograd: {self.run.stop_reason}: saving a checkpoint, then stopping", file=sys.stderr)
        name = self.save_checkpoint().name
        if self._short is not None:
            raise ResourceError(f"{self._short}; saved as {name}, to go on: retrograd resume {self.folder}")
        return {"stopped_at_step": self.run.step, "checkpoint": name}

    def _log(self) -> None:
        now = self._clock()
        seconds = max(now - self._logged_at - self._paused_seconds, 1e-9)
        extra = {
            **self.agent.metrics(self.run.step),
            **self.loop.log_extras(),
            **self.run.timer.take(),
            "steps_per_second": (self.run.step - self._logged_step) / seconds,
            "wall_seconds": now - self._started,
        }
        self.logger.log_step(step=self.run.step, env_frames=self.run.env_frames, extra=extra)
        self._logged_at, self._logged_step, self._paused_seconds = now, self.run.step, 0.0

    def _finish(self) -> dict[str, Any]:
        if self._final is None:
            final, video = self._evaluate("final", film=True)
            self._ended = True
            name = self.save_checkpoint(final, video).name
        else:  # killed between its last checkpoint and its summary
            final, name = self._final.metrics, self._final.path.name
        summary = {
            "step": self.run.step,
            "env_frames": self.run.env_frames,
            "episodes": self.run.episodes,
            "updates": getattr(self.agent, "updates", 0),
            "wall_seconds": self._clock() - self._started,
            "checkpoint": name,
            "final": final,
        }
        durable.write_json(self.folder / "summary.json", summary)
        return summary

    def _video(self) -> Path | None:
        """A video is a pleasure, not a result: without one the run goes on, as one that records none would."""
        if not self.record_video:
            return None
        path, before = self.folder / f".video-{self.run.step}.mp4", self._random_states()
        try:
            self.judge.record(path, step=self.run.step)
        except Stopped:
            raise
        except Exception as error:  # encoders and renderers fail in many ways
            log.warning("no video at step %d, the training goes on: %s", self.run.step, error or type(error).__name__)
            self._load_random_states(before)
            return None
        return path

    def _dump(self, failure: FailureGate) -> None:
        """What was known when a gate closed, beside the last good checkpoint."""
        stats = self.logger.tracker.get_training_stats()
        report = {"step": self.run.step, "env_frames": self.run.env_frames, "metrics": stats}
        dump_failure(self.folder, failure, report)
