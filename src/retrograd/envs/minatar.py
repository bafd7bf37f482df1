"""MinAtar: five Atari games on boards of 10 × 10 cells (Young and Tian 2019, arXiv:1903.03176).

The games themselves come from the optional package. Its own Gymnasium class is not used: it carries the last action
over into the next game, where a sticky action repeats it, and its pictures are not bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Env, spaces

from retrograd.core.errors import UsageError, missing_extra, suggest
from retrograd.core.types import Array

GAMES = {
    "Asterix": "asterix",
    "Breakout": "breakout",
    "Freeway": "freeway",
    "Seaquest": "seaquest",
    "SpaceInvaders": "space_invaders",
}
ACTION_NAMES = ("NOOP", "LEFT", "UP", "RIGHT", "DOWN", "FIRE")
MAX_EPISODE_STEPS = 10_000  # a ball can circle for ever between walls; no game worth its name lasts that long
CELL_PIXELS = 16


class MinAtar(Env[Any, Any]):
    """A board of booleans [10, 10, C], a channel for each kind of object; one action in ten is the last one again."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        game: str,
        *,
        minimal_actions: bool = True,
        sticky_action_probability: float = 0.1,
        difficulty_ramping: bool = True,
        render_mode: str | None = None,
    ) -> None:
        if game not in GAMES.values():
            known = ", ".join(GAMES.values())
            raise UsageError(f"there is no MinAtar game {game!r}; there are {known}.{suggest(game, GAMES.values())}")
        try:
            from minatar import Environment
        except ModuleNotFoundError as error:
            raise missing_extra(f"MinAtar's {game}", "minatar") from error
        self._game: Any = Environment(game, sticky_action_probability, difficulty_ramping)
        self._actions = self._game.minimal_action_set() if minimal_actions else list(range(len(ACTION_NAMES)))
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(len(self._actions))
        self.observation_space = spaces.Box(0, 1, tuple(self._game.state_shape()), np.bool_)
        channels = self._game.state_shape()[2]
        self._colors = np.concatenate([[[0, 0, 0]], _spread_colors(channels)]).astype(np.uint8)  # [C + 1, 3]

    def get_action_meanings(self) -> list[str]:
        return [ACTION_NAMES[action] for action in self._actions]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._game.seed(seed)
        self._game.last_action = 0
        self._game.reset()
        return self._board(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        reward, terminated = self._game.act(self._actions[action])
        return self._board(), float(reward), bool(terminated), False, {}

    def render(self) -> Array:
        board = self._board()
        # where objects overlap, the later channel is on top
        top = (board * np.arange(1, board.shape[2] + 1)).max(axis=2)
        picture: Array = self._colors[top].repeat(CELL_PIXELS, axis=0).repeat(CELL_PIXELS, axis=1)
        return picture

    def _board(self) -> Array:
        board: Array = np.array(self._game.state(), np.bool_)  # a copy: the game goes on writing into its own
        return board


def _spread_colors(count: int) -> Array:
    """Hues all round the circle, ever brighter: [count, 3]."""
    angle = np.linspace(0, 2 * np.pi, count, endpoint=False)[:, None] + np.array([0, 2, 4]) * np.pi / 3
    brightness = np.linspace(150, 255, count)[:, None]
    return (0.5 + 0.5 * np.cos(angle)) * brightness


def register_minatar() -> None:
    """Make the games known to Gymnasium under the package's own ids; the package is needed only to play.

    v1 has each game's own actions, v0 all six.
    """
    import gymnasium

    for name, game in GAMES.items():
        for version, minimal in ((0, False), (1, True)):
            env_id = f"MinAtar/{name}-v{version}"
            if env_id not in gymnasium.registry:
                gymnasium.register(
                    env_id,
                    entry_point="retrograd.envs.minatar:MinAtar",
                    kwargs={"game": game, "minimal_actions": minimal},
                    max_episode_steps=MAX_EPISODE_STEPS,
                    disable_env_checker=True,
                )
