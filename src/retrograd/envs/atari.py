"""Atari preprocessing of one Gymnasium environment, frame for frame what the native path does.

Used for pictures and videos, for real-valued actions, and for anything that draws like an emulator.
"""

from __future__ import annotations

from typing import Any

import cv2
import gymnasium
import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.types import Array
from retrograd.envs.protocol import AtariProtocol

CAPTURE_FPS = 30  # two ticks of a 60 Hz console make one picture


class AtariPreprocessing(gymnasium.Wrapper):
    """No-op and fire reset, action repeat with a max over the last two frames (or the last alone), gray, resize.

    Observations are single frames [screen_size, screen_size] uint8. ``terminated`` means game over, never
    a lost life: ``info["lives"]`` and ``info["life_lost"]`` tell about those. Rewards are unclipped.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], protocol: AtariProtocol, *, capture: bool = False) -> None:
        super().__init__(env)
        own_skip = getattr(env.unwrapped, "_frameskip", 1)
        if own_skip != 1:
            raise UsageError(
                f"the environment skips frames itself (frameskip {own_skip}); make it with frameskip=1, "
                f"the action repeat of {protocol.action_repeat} is done here"
            )
        shape = env.observation_space.shape
        if shape is None or len(shape) not in (2, 3) or min(shape[:2]) < protocol.screen_size:
            raise UsageError(f"Atari preprocessing needs frames of {protocol.screen_size} pixels or more, got {shape}")
        size = protocol.screen_size
        self.observation_space = gymnasium.spaces.Box(0, 255, (size, size), np.uint8)
        self.protocol = protocol
        self.capture_fps = CAPTURE_FPS
        self._noop, self._fire = self._find_buttons()
        self._raw = np.zeros((2, *shape[:2]), np.uint8)  # [2, H, W] the last frame and the one before
        self._shown = 2 if protocol.max_pool else 1
        self._frames = 0
        self._lives = 0
        self._capture = capture
        self._pictures: list[Array] = []
        self._half: Array | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        frame, info = self.env.reset(seed=seed, options=options)
        self._frames = 0
        # FIRE counts as one of the no-ops, so that noop_max bounds the frames before the agent acts
        presses = int(self.np_random.integers(0, self.protocol.noop_max + 1)) if self.protocol.noop_max else 0
        buttons = [] if self._fire is None else [self._fire]
        for button in [*buttons, *[self._noop] * (presses - len(buttons))]:
            frame, _, terminated, truncated, info = self._tick(button)
            if terminated or truncated:
                frame, info = self.env.reset()
                self._frames = 0
        self._raw[0] = _to_gray(frame)
        self._raw[1] = 0
        self._half = None
        self._shoot()
        self._lives = info.get("lives", 0)
        return self._pool(), self._extend(info)

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        score = 0.0
        for left in range(self.protocol.action_repeat, 0, -1):
            frame, reward, terminated, truncated, info = self._tick(action)
            score += float(reward)
            self._shoot()
            if terminated or truncated:
                break  # before the frame is taken, as the native path does: nothing after the end is shown
            if left <= self._shown:
                self._raw[left - 1] = _to_gray(frame)
        info = self._extend(info)
        if not terminated and info["episode_frame_number"] >= self.protocol.max_episode_frames:
            truncated = True
        return self._pool(), score, terminated, truncated, info

    def pop_frames(self) -> list[Array]:
        """Pictures [210, 160, 3] since the last call, 30 for each second of play."""
        pictures, self._pictures = self._pictures, []
        return pictures

    def _tick(self, action: Any) -> tuple[Array, Any, bool, bool, dict[str, Any]]:
        self._frames += 1
        return self.env.step(action)

    def _extend(self, info: dict[str, Any]) -> dict[str, Any]:
        lives = info.get("lives", 0)
        lost, self._lives = lives < self._lives, lives
        return {"episode_frame_number": self._frames, **info, "lives": lives, "life_lost": lost}

    def _pool(self) -> Array:
        # in place: when a game ends before two new frames came, the native path pools with the last pooled one
        np.maximum(self._raw[0], self._raw[1], out=self._raw[0])
        size = self.protocol.screen_size
        return np.asarray(cv2.resize(self._raw[0], (size, size), interpolation=cv2.INTER_AREA))

    def _shoot(self) -> None:
        """One picture for two ticks, the brighter of each pixel: sprites drawn on every other tick stay visible."""
        if not self._capture:
            return
        picture = np.asarray(self.env.render())
        if self._half is None:
            self._half = picture
        else:
            self._pictures.append(np.maximum(self._half, picture))
            self._half = None

    def _find_buttons(self) -> tuple[Any, Any]:
        """The actions that do nothing and that press FIRE; None where there is no such button."""
        if isinstance(self.env.action_space, gymnasium.spaces.Box):
            shape = self.env.action_space.shape
            press = np.zeros(shape, np.float32)
            press[-1] = 1.0
            return np.zeros(shape, np.float32), press if self.protocol.fire_reset else None
        meanings = list(getattr(self.env.unwrapped, "get_action_meanings", list)())
        wants_fire = self.protocol.fire_reset and "FIRE" in meanings
        return 0, meanings.index("FIRE") if wants_fire else None


def _to_gray(frame: Array) -> Array:
    return frame if frame.ndim == 2 else np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY))


class RenderCapture(gymnasium.Wrapper):
    """Keeps one rendered picture of every step of an environment without emulator frames."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        self.capture_fps = int(env.metadata.get("render_fps") or CAPTURE_FPS)
        self._pictures: list[Array] = []
        self._opening: list[Array] = []  # shown with the game's first step, so that no game ends with the next one's

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        answer = self.env.reset(seed=seed, options=options)
        self._opening = self._shoot()
        return answer

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        answer = self.env.step(action)
        self._pictures += self._opening + self._shoot()
        self._opening = []
        return answer

    def pop_frames(self) -> list[Array]:
        pictures, self._pictures = self._pictures, []
        return pictures

    def _shoot(self) -> list[Array]:
        try:
            picture: Any = self.env.render()
        except NotImplementedError:  # it can be played, and has nothing to show
            return []
        return [picture] if isinstance(picture, np.ndarray) else []
