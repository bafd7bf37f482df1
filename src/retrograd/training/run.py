"""How far a run is, and what is due: counters and cadences, no files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from retrograd.core.cadence import crossed
from retrograd.core.types import Episode, Update
from retrograd.training.timing import PhaseTimer


@dataclass(frozen=True, slots=True)
class Plan:
    """The budget and the cadences of a run, in steps and episodes."""

    total_steps: int
    frames_per_step: int
    log_every_steps: int
    warmup_steps: int = 0
    total_episodes: int | None = None
    pause_at_steps: int | None = None  # what schedules do not know of: the run is saved there, and goes on later
    light_eval_every_steps: int | None = None
    full_eval_every_steps: int | None = None
    eval_every_episodes: int | None = None
    checkpoint_every_steps: int | None = None
    checkpoint_every_episodes: int | None = None
    sync_every_steps: int | None = None  # a rollout: its last step is learned from before the next one is chosen


@dataclass(frozen=True, slots=True)
class Due:
    """What the step just learned from has made due."""

    log: bool
    light_eval: bool
    full_eval: bool
    checkpoint: bool

    @property
    def pause(self) -> bool:
        """Whether the step has to be learned from before the next one is chosen; a checkpoint does not need that."""
        return self.light_eval or self.full_eval


class Run:
    """Counts steps and episodes. What is due never depends on the time: the timer only keeps it for the log."""

    def __init__(
        self,
        plan: Plan,
        *,
        on_episode: Callable[[Episode, int, int], None],
        on_update: Callable[[Update], None],
    ) -> None:
        self.plan = plan
        self.step = 0  # agent steps remembered and learned from
        self.episodes = 0
        self.stop_requested = False  # by a signal: the trainer saves and ends the run
        self.stop_reason = "asked to stop"
        self.save_requested = False  # by a signal: the trainer saves and goes on
        self.timer = PhaseTimer()
        self._on_episode = on_episode
        self._on_update = on_update
        self._begun_step = 0  # where the first rollout began
        self._before = (0, 0)  # step and episodes when what is due was last asked for

    @property
    def env_frames(self) -> int:
        return self.step * self.plan.frames_per_step

    def spent(self, acted_steps: int) -> bool:
        """Whether the budget allows no further step after ``acted_steps``."""
        episodes = self.plan.total_episodes
        return acted_steps >= self.plan.total_steps or (episodes is not None and self.episodes >= episodes)

    @property
    def paused(self) -> bool:
        """Whether the run has come to where it was to wait; where its budget ends it has come to its end."""
        pause = self.plan.pause_at_steps
        return pause is not None and self.step >= pause and not self.spent(self.step)

    def played(self, episodes: Iterable[Episode], acted_steps: int) -> None:
        """Full games that ended with the step that brings the count to ``acted_steps``."""
        for episode in episodes:
            self.episodes += 1
            self._on_episode(episode, acted_steps, self.episodes)

    def advance(self, num_envs: int) -> None:
        self.step += num_envs

    def learned(self, update: Update) -> None:
        self._on_update(update)

    def pauses(self, acted_steps: int) -> bool:
        """Whether something that needs quiet emulators is due once ``acted_steps`` are learned from."""
        begun = self._begun_step
        edge = crossed(self.step - begun, acted_steps - begun, self.plan.sync_every_steps)
        return edge or self._due(acted_steps).pause

    def take_due(self) -> Due:
        """What has become due since the last call."""
        now = self._due(self.step)
        self._before = (self.step, self.episodes)
        return now

    def _due(self, step: int) -> Due:
        plan, (before, episodes_before) = self.plan, self._before
        full = crossed(before, step, plan.full_eval_every_steps)
        return Due(
            log=crossed(before, step, plan.log_every_steps),
            light_eval=crossed(before, step, plan.light_eval_every_steps) and not full,
            full_eval=full or crossed(episodes_before, self.episodes, plan.eval_every_episodes),
            checkpoint=crossed(before, step, plan.checkpoint_every_steps)
            or crossed(episodes_before, self.episodes, plan.checkpoint_every_episodes),
        )

    def state_dict(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "episodes": self.episodes,
            "before": list(self._before),
            "begun_step": self._begun_step,
        }

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.step, self.episodes = int(state["step"]), int(state["episodes"])
        step_before, episodes_before = state["before"]
        self._before = (int(step_before), int(episodes_before))
        self._begun_step = int(state["begun_step"])

    def begin_at(self, step: int) -> None:
        """Count on from a step that another run has reached."""
        self.step = step
        self._begun_step = step
        self._before = (step, self.episodes)
