"""A screen that flickers: whole frames are blank at random, so that one frame, or a few, do not tell where things are.

Hausknecht & Stone 2015, arXiv:1507.06527, made games partially observable this way, with a probability of one half.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.protocols import VecEnv
from retrograd.core.seeding import load_rng_state, rng_state
from retrograd.core.types import Array, ArraySpec, EnvStep, Obs
from retrograd.envs.wrappers import BaseWrapper


class Flicker(BaseWrapper):
    """Each new frame of each row is zeros with ``probability``; in a stack it stays what it was.

    It lies over the rows of any back end. Scores and pictures for people are those of the game.
    """

    def __init__(self, env: VecEnv, probability: float, rng: np.random.Generator) -> None:
        super().__init__(env)
        if not isinstance(env.spec.obs, ArraySpec):
            raise UsageError(
                f"flicker_probability={probability} needs one array per observation, "
                f"{env.spec.name} has {', '.join(env.spec.obs)}"
            )
        if not 0.0 <= probability < 1.0:
            raise UsageError(f"flicker_probability is {probability}, but must be in [0, 1): 1 would show nothing")
        self._probability, self._rng = probability, rng
        self._shown = self._begin()  # [N, frames] bool
        self._obs = self._blank(env.observe(), self._shown)

    def observe(self) -> Obs:
        return self._obs

    def recv(self) -> EnvStep:
        step = self.env.recv()
        shown = np.concatenate([self._shown[:, 1:], self._draw()[:, None]], axis=1)
        obs = next_obs = self._blank(step.next_obs, shown)
        if step.reset.any():
            shown = np.where(step.reset[:, None], self._begin(), shown)
            obs = self._blank(step.obs, shown)
        self._shown, self._obs = shown, obs
        return replace(step, obs=obs, next_obs=next_obs)

    def own_state(self) -> dict[str, Any]:
        return {"shown": self._shown.copy(), "rng": rng_state(self._rng)}

    def load_own_state(self, state: dict[str, Any]) -> None:
        self._shown = np.array(state["shown"], bool)
        load_rng_state(self._rng, state["rng"])
        self._obs = self._blank(self.env.observe(), self._shown)

    def _draw(self) -> Array:
        """[N] whether each row's newest frame is shown."""
        drawn: Array = self._rng.random(self.num_envs) >= self._probability
        return drawn

    def _begin(self) -> Array:
        """[N, frames] at the start of games: what lies before the first frame is blank already."""
        shown = np.ones((self.num_envs, self.spec.frame_stack or 1), bool)
        shown[:, -1] = self._draw()
        return shown

    def _blank(self, obs: Obs, shown: Array) -> Array:
        blanked = np.array(obs)
        blanked[~shown if self.spec.frame_stack is not None else ~shown[:, 0]] = 0
        return blanked
