"""The Atari evaluation protocol: everything that decides whether two scores may be compared."""

from __future__ import annotations

from dataclasses import dataclass
from operator import index

from retrograd.core.errors import UsageError


@dataclass(frozen=True, slots=True)
class AtariProtocol:
    """How a game is shown, acted on and ended. Life loss ends an episode for the learner only."""

    repeat_action_probability: float = 0.0
    frameskip: int = 1  # the emulator's own
    action_repeat: int = 4
    max_pool: bool = True  # over the last two frames of a step, for sprites drawn on every other one
    full_action_space: bool = False
    continuous_actions: bool = False
    noop_max: int = 30
    fire_reset: bool = True
    terminal_on_life_loss: bool = False
    max_episode_frames: int = 108_000
    reward_clip: bool = True
    screen_size: int = 84
    frame_stack: int = 4

    def __post_init__(self) -> None:
        if self.frameskip != 1:
            raise UsageError(
                f"frameskip is {self.frameskip!r}, but must be 1: it is the emulator's own skip, which would hide "
                "frames from the max over the last two. Set action_repeat (2 to 4) instead."
            )
        if not 0.0 <= self.repeat_action_probability < 1.0:
            raise UsageError(
                f"repeat_action_probability is {self.repeat_action_probability!r}, but must be in [0, 1); "
                "sticky actions use 0.25"
            )
        self._check_whole("action_repeat", 1, 4)
        self._check_whole("frame_stack", 1, 4)
        self._check_whole("noop_max", 0, 1_000)
        self._check_whole("screen_size", 20, 160)
        self._check_whole("max_episode_frames", 4, 1_000_000_000)

    def _check_whole(self, name: str, low: int, high: int) -> None:
        value = getattr(self, name)
        if isinstance(value, (bool, float, str)) or value is None or not low <= index(value) <= high:
            raise UsageError(f"{name} is {value!r}, but must be a whole number from {low} to {high}")
