"""Atari on the emulator's own vector environment: native threads play between ``send`` and ``recv``.

The emulator's automatic resets are never used. A row whose game is over is reset at once, so the array
received is the true successor and the one after the reset is what to act on. Its life-loss switches are
not used either: one of them restarts the whole game. We compare the lives ourselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ale_py.vector_env import AtariVectorEnv

from retrograd.core.errors import CheckpointError, UsageError
from retrograd.core.types import Array, ArraySpec, DiscreteActions, EnvSpec, EnvStep
from retrograd.envs.actions import check_action
from retrograd.envs.episodes import EpisodeMeter
from retrograd.envs.games import Game, resolve
from retrograd.envs.journal import Journal
from retrograd.envs.protocol import AtariProtocol
from retrograd.envs.watchdog import Patience, Watchdog

# the emulator drops the last frames of a step that its own cap cuts short, so the cap is ours;
# it adds one to this number, which must not overflow 32 bits
_NO_NATIVE_CAP_FRAMES = 2**30


class NativeAtari:
    """N rows of one game. Observations are [N, frame_stack, screen_size, screen_size] uint8, newest last."""

    def __init__(
        self,
        game: str | Game,
        num_envs: int,
        protocol: AtariProtocol | None = None,
        *,
        seed: int,
        threads: int = 0,
        max_episode_steps: int | None = None,
        patience: Patience | None = None,
        reseed_after_steps: int = 10_000,
    ) -> None:
        self.game = resolve(game) if isinstance(game, str) else game
        self.protocol = protocol if protocol is not None else AtariProtocol()
        if num_envs < 1:
            raise UsageError(f"num_envs is {num_envs}, but must be at least 1")
        if self.protocol.continuous_actions:
            raise UsageError("continuous_actions run on the gymnasium backend only: set backend='gymnasium'")
        self.num_envs = num_envs
        self._env = _make_emulators(self.game, num_envs, self.protocol, threads)
        self.spec = self._describe()
        self._max_episode_steps = max_episode_steps
        rows = "row 0" if num_envs == 1 else f"one of the rows 0 to {num_envs - 1}"
        seconds = (patience if patience is not None else Patience()).watchdog_seconds
        self._watchdog = Watchdog(f"the emulator of {self.game.rom} ({rows})", seconds)
        self._meter = EpisodeMeter(num_envs)
        self._journal = Journal(num_envs, self.spec.action, seed, reseed_after_steps)
        self._lives: Array = np.zeros(num_envs, np.int32)
        self._frames: Array = np.zeros(num_envs, np.int32)
        self._in_flight = False
        self._obs: Array = np.zeros(0, np.uint8)
        self._reset(np.ones(num_envs, bool), np.asarray(self._journal.row_seeds(), np.int64))

    def observe(self) -> Array:
        return self._obs

    def send(self, action: Array) -> None:
        if self._in_flight:
            raise RuntimeError("send called twice without recv")
        checked = check_action(action, self.spec.action, self.num_envs)
        self._journal.append(checked)
        self._env.send(checked)
        self._in_flight = True

    def recv(self) -> EnvStep:
        if not self._in_flight:
            raise RuntimeError("recv called without send")
        lives_before = self._lives
        next_obs, score, over, cut = self._receive()
        terminated = over | (self._lives < lives_before) if self.protocol.terminal_on_life_loss else over
        ended = over | cut
        episodes = self._meter.finish(ended, self._frames)
        if episodes:
            self._reset(ended, self._journal.next_seeds(ended))
        else:
            self._obs = next_obs
        reward = np.sign(score) if self.protocol.reward_clip else score
        return EnvStep(
            obs=self._obs,
            next_obs=next_obs,
            reward=reward.astype(np.float32),
            terminated=terminated,
            truncated=cut & ~terminated,
            reset=ended,
            episodes=episodes,
        )

    def snapshot(self) -> dict[str, Any]:
        """Seeds, actions since, and counters; ``restore`` plays the actions again (see ``journal``)."""
        if self._in_flight:
            raise RuntimeError("snapshot needs nothing in flight: call recv first")
        return {
            "kind": "native",
            "game": self.game.rom,
            "journal": self._journal.state_dict(),
            "meter": self._meter.state_dict(),
            "obs": self._obs.copy(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        if state.get("kind") != "native" or state.get("game") != self.game.rom:
            raise CheckpointError(
                f"the saved environments are {state.get('kind')} {state.get('game')}, these are native {self.game.rom}"
            )
        self._journal.load_state_dict(state["journal"])
        self._journal.replay(self._replay_step, self._reset)
        self._meter.load_state_dict(state["meter"])
        if not np.array_equal(self._obs, state["obs"]):
            raise CheckpointError(
                f"the saved games of {self.game.rom} could not be played again: another emulator version or protocol?"
            )

    def close(self) -> None:
        self._watchdog.close()
        if not self._env.closed:
            self._env.close()
            del self._env.ale  # joins the emulator threads now, not when the collector comes by

    def _receive(self) -> tuple[Array, Array, Array, Array]:
        """Wait for the emulators: successor, raw reward, games over, games cut by a limit."""
        with self._watchdog:
            next_obs, score, over, _, info = self._env.recv()
        self._in_flight = False
        self._lives, self._frames = info["lives"], info["episode_frame_number"]
        self._meter.add(score)
        cut = self._frames >= self.protocol.max_episode_frames
        if self._max_episode_steps is not None:
            cut = cut | (self._meter.length_steps >= self._max_episode_steps)
        return next_obs, score, over, cut & ~over

    def _reset(self, rows: Array, seeds: Array) -> None:
        """Begin new games in ``rows``; ``seeds`` [N] is negative where random numbers just run on."""
        with self._watchdog:
            self._obs, info = self._env.reset(seed=seeds[rows], options={"reset_mask": rows})
        self._lives, self._frames = info["lives"], info["episode_frame_number"]
        self._meter.clear(rows)

    def _replay_step(self, action: Array) -> Array:
        self._env.send(action.astype(np.int64))
        self._obs, _, over, cut = self._receive()
        ended: Array = over | cut
        return ended

    def _describe(self) -> EnvSpec:
        protocol = self.protocol
        shape = (protocol.frame_stack, protocol.screen_size, protocol.screen_size)
        names = tuple(action.name for action in self._env.ale.get_action_set())
        return EnvSpec(
            name=self.game.rom,
            obs=ArraySpec(shape, np.dtype(np.uint8), 0.0, 255.0),
            action=DiscreteActions(len(names), names),
            frame_stack=protocol.frame_stack,
            frames_per_step=protocol.action_repeat,
        )


def _make_emulators(game: Game, num_envs: int, protocol: AtariProtocol, threads: int) -> AtariVectorEnv:
    return AtariVectorEnv(
        game.rom,
        num_envs,
        num_threads=threads,
        max_num_frames_per_episode=_NO_NATIVE_CAP_FRAMES,
        repeat_action_probability=protocol.repeat_action_probability,
        full_action_space=protocol.full_action_space,
        img_height=protocol.screen_size,
        img_width=protocol.screen_size,
        stack_num=protocol.frame_stack,
        frameskip=protocol.action_repeat,
        maxpool=protocol.max_pool,
        noop_max=protocol.noop_max + 1,  # the emulator draws from 0 to one less than this
        episodic_life=False,
        life_loss_info=False,
        reward_clipping=False,
        use_fire_reset=protocol.fire_reset,
    )
