"""Catch: a ball falls, a paddle has to be under it. As a board, and drawn like an emulator's screen."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Env, spaces

from retrograd.core.types import Array


class Catch(Env[Any, Any]):
    """10 × 5 board, nine decisions, reward +1 or -1 at the end; the best return is 1, random about -0.6."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012

    def __init__(self, rows: int = 10, columns: int = 5, render_mode: str | None = None) -> None:
        self.rows, self.columns, self.render_mode = rows, columns, render_mode
        self.action_space = spaces.Discrete(3)  # left, stay, right
        self.observation_space = spaces.Box(0.0, 1.0, (rows * columns,), np.float32)
        self.ball_row = self.ball_column = self.paddle = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.ball_row, self.ball_column = 0, int(self.np_random.integers(self.columns))
        self.paddle = self.columns // 2
        return self.board().reshape(-1), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.paddle = int(np.clip(self.paddle + action - 1, 0, self.columns - 1))
        self.ball_row += 1
        landed = self.ball_row == self.rows - 1
        reward = (1.0 if self.ball_column == self.paddle else -1.0) if landed else 0.0
        return self.board().reshape(-1), reward, landed, False, {}

    def board(self) -> Array:
        board = np.zeros((self.rows, self.columns), np.float32)
        board[self.ball_row, self.ball_column] = 1.0
        board[-1, self.paddle] = 1.0
        return board

    def render(self) -> Array:
        picture = (np.kron(self.board(), np.ones((16, 16))) * 255).astype(np.uint8)
        return np.repeat(picture[..., None], 3, axis=2)


class CatchScreen(Env[Any, Any]):
    """Catch as frames [210, 160, 3] of which four make one move; after the first the ball is on odd ticks only.

    Who looks at every fourth frame without the max over two never sees it.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 60}  # noqa: RUF012
    TICKS_PER_MOVE = 4

    def __init__(self, render_mode: str | None = None) -> None:
        self._game = Catch()
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(3)
        self.observation_space = spaces.Box(0, 255, (210, 160, 3), np.uint8)
        self._tick = 0

    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "RIGHT", "LEFT"]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._game.reset(seed=int(self.np_random.integers(2**31)))
        self._tick = 0
        return self.render(), {"lives": 0}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._tick += 1
        reward, landed = 0.0, False
        if self._tick % self.TICKS_PER_MOVE == 1:  # at once, so that the two pooled frames agree
            _, reward, landed, _, _ = self._game.step((1, 2, 0)[action])
        return self.render(), reward, landed, False, {"lives": 0}

    def render(self) -> Array:
        screen = np.zeros((210, 160, 3), np.uint8)
        height, width = 210 // self._game.rows, 160 // self._game.columns
        left = self._game.paddle * width
        screen[-height:, left : left + width] = (92, 186, 92)
        if self._tick % 2 == 1 or self._tick == 0:
            top, left = self._game.ball_row * height, self._game.ball_column * width
            screen[top : top + height, left : left + width] = (236, 236, 236)
        return screen
