"""Players that read the screen and play three games well, for frames that a random player never gets to see.

They follow the ball or the shots by looking at the newest frame of each row, [84, 84] uint8, and need no
training; ``benchmarks/compression.py`` prints the scores beside its figures.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Player = Callable[[np.ndarray], np.ndarray]  # [N, 84, 84] -> [N] actions
NOOP, FIRE, RIGHT, LEFT, RIGHT_FIRE, LEFT_FIRE = range(6)  # the minimal action set; in Pong right is up


def center(mask: np.ndarray, axis: int) -> np.ndarray:
    """[N] mean place of what is marked along one axis of [N, H, W], NaN where nothing is."""
    places = np.arange(mask.shape[axis])
    along = mask.sum(axis=3 - axis)
    total = along.sum(axis=1)
    return np.where(total > 0, (along * places).sum(axis=1) / np.maximum(total, 1), np.nan)


def pong(frames: np.ndarray) -> np.ndarray:
    """Keep the paddle at the ball's height."""
    field = frames[:, 14:77]
    ground = np.median(field.reshape(len(field), -1), axis=1)[:, None, None]
    thing = np.abs(field.astype(int) - ground) > 30
    ball, paddle = center(thing[:, :, 12:72], 1), center(thing[:, :, 73:77], 1)
    off = np.nan_to_num(ball - paddle)
    return np.where(off > 2, LEFT, np.where(off < -2, RIGHT, FIRE))


class Breakout:
    """Keep the paddle under the ball, aimed a little ahead of where it flies; serve when there is none."""

    def __init__(self) -> None:
        self.ball: np.ndarray | None = None
        self.steps = 0

    def __call__(self, frames: np.ndarray) -> np.ndarray:
        field = frames[:, 38:75, 5:79] > 30
        ball, paddle = center(field, 2), center(frames[:, 76:78, 5:79] > 30, 2)
        before = self.ball if self.ball is not None else ball
        speed = np.clip(np.nan_to_num(ball - before), -4, 4)
        self.ball = np.where(np.isnan(ball), before, ball)
        self.steps += 1
        # hitting with different parts of the paddle keeps the ball from circling for ever
        aim = self.ball + speed + 2 * np.sin(self.steps / 50 + np.arange(len(frames)))
        off = np.nan_to_num(aim - paddle)
        action = np.where(off > 1.5, RIGHT, np.where(off < -1.5, LEFT, NOOP))
        return np.where(np.isnan(ball) & (self.steps % 8 == 0), FIRE, action)


def space_invaders(frames: np.ndarray) -> np.ndarray:
    """Shoot all the time; step aside from what falls above the cannon, otherwise stay under the invaders."""
    shots = frames[:, 60:73] > 30
    cannon = center(frames[:, 73:78] > 30, 2)
    columns = np.arange(84)
    near = shots.any(axis=1) & (np.abs(columns - np.nan_to_num(cannon, nan=42.0)[:, None]) < 5)
    threat = center(near[:, None, :], 2)
    invaders = center(frames[:, 15:60] > 30, 2)
    aim = np.where(np.isnan(threat), np.nan_to_num(invaders - cannon), np.where(threat > cannon, -9, 9))
    return np.where(aim > 2, RIGHT_FIRE, np.where(aim < -2, LEFT_FIRE, FIRE))


def make_player(game: str) -> Player:
    players: dict[str, Callable[[], Player]] = {
        "pong": lambda: pong,
        "breakout": Breakout,
        "space_invaders": lambda: space_invaders,
    }
    if game not in players:
        raise SystemExit(f"there is no scripted player of {game!r}, only of {', '.join(players)}")
    return players[game]()
