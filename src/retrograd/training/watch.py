"""An agent playing in a window; where there is no window, a video instead."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent
from retrograd.core.types import Array
from retrograd.training.video import Viewer, enlargement, play_game, record_episode

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchInfo:
    scores: tuple[float, ...]  # of the games that were seen to their end
    video: Path | None  # where the game was recorded instead


def watch(
    agent: Agent, viewer: Viewer, *, step: int, video: Path, episodes: int = 1, explore: bool = False, title: str = ""
) -> WatchInfo:
    """Show ``episodes`` games; the window's close button, Escape and Q end it early.

    Without pygame or a display, says so and records one game to ``video``.
    """
    if episodes < 1:
        raise UsageError(f"episodes is {episodes}: there must be at least 1 game to watch")
    pygame, reason = _open_display()
    if pygame is None:
        log.warning("%s: recording a video to %s instead", reason, video)
        info = record_episode(agent, viewer, video, step=step, explore=explore)
        return WatchInfo(() if info.score is None else (info.score,), video)
    try:
        return WatchInfo(_show(pygame, agent, viewer, step, episodes, explore, title or viewer.spec.name), None)
    finally:
        pygame.quit()


def _open_display() -> tuple[ModuleType | None, str]:
    """pygame with its display open, or None and the reason."""
    chosen = os.environ.get("SDL_VIDEODRIVER")
    if sys.platform.startswith("linux") and not chosen and not _has_linux_display():
        return None, "no display (DISPLAY and WAYLAND_DISPLAY are unset)"
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")  # it would greet on standard output
    try:
        import pygame
    except ImportError:
        return None, 'no window without pygame (pip install "retrograd[watch]")'
    try:
        pygame.display.init()
    except pygame.error as error:
        return None, f"no display ({error})"
    return pygame, ""


def _has_linux_display() -> bool:
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _show(
    pygame: Any, agent: Agent, viewer: Viewer, step: int, episodes: int, explore: bool, title: str
) -> tuple[float, ...]:
    scores: list[float] = []
    window: Any = None
    pace = _Pace(viewer.fps)
    for _ in range(episodes):
        for frames, episode in play_game(agent, viewer, step=step, explore=explore):
            for frame in frames:
                if window is None:
                    height, width = frame.shape[:2]
                    scale = enlargement(height)
                    window = pygame.display.set_mode((width * scale, height * scale))
                    pygame.display.set_caption(title)
                _draw(pygame, window, frame)
                pace.wait()
                if _asked_to_leave(pygame):
                    return tuple(scores)
            if episode is not None:
                scores.append(episode.score)
    return tuple(scores)


def _draw(pygame: Any, window: Any, frame: Array) -> None:
    picture = pygame.surfarray.make_surface(frame.swapaxes(0, 1))  # pygame counts x first
    window.blit(pygame.transform.scale(picture, window.get_size()), (0, 0))
    pygame.display.flip()


def _asked_to_leave(pygame: Any) -> bool:
    return any(
        event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key in (pygame.K_ESCAPE, pygame.K_q))
        for event in pygame.event.get()
    )


class _Pace:
    """Spaces pictures evenly; after a slow agent it goes on from now instead of hurrying to catch up."""

    def __init__(
        self, fps: float, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._seconds = 1.0 / fps
        self._clock, self._sleep = clock, sleep
        self._next = clock()

    def wait(self) -> None:
        now = self._clock()
        self._next = max(self._next + self._seconds, now)
        if self._next > now:
            self._sleep(self._next - now)
