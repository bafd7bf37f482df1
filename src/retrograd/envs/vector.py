"""Any Gymnasium environments as rows, in this process or in workers, with true successors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from retrograd.core.errors import CheckpointError, RetrogradError, UsageError
from retrograd.core.types import Array, DiscreteActions, EnvSpec, EnvStep, Obs
from retrograd.envs.actions import check_action
from retrograd.envs.episodes import EpisodeMeter
from retrograd.envs.journal import UNSEEDED, Journal
from retrograd.envs.spaces import describe_actions, describe_observations
from retrograd.envs.watchdog import Patience
from retrograd.envs.workers import Maker, RowStep, WorkerRows


class GymVec:
    """N rows of Gymnasium environments behind ``VecEnv``.

    ``workers=True`` runs each row in a process of its own, which pays when a step takes milliseconds. One that
    crashes or hangs is started anew: its game is cut there, as by a time limit, and gives no score.
    ``snapshot`` keeps seeds and actions (see ``journal``): exact for every environment that repeats itself
    when seeded, and ``restore`` says so when one does not.
    """

    def __init__(
        self,
        makers: Sequence[Maker],
        *,
        seed: int,
        name: str = "",
        workers: bool = False,
        reward_clip: bool = False,
        terminal_on_life_loss: bool = False,
        max_episode_steps: int | None = None,
        frames_per_step: int = 1,
        patience: Patience | None = None,
        reseed_after_steps: int = 10_000,
    ) -> None:
        if not makers:
            raise UsageError("num_envs is 0, but must be at least 1")
        self.num_envs = len(makers)
        self._env: SyncVectorEnv | WorkerRows
        if workers:
            patience = patience if patience is not None else Patience()
            self._env = WorkerRows(
                makers,
                name=name,
                timeout_seconds=patience.worker_timeout_seconds,
                restarts_per_hour=patience.worker_restarts_per_hour,
            )
        else:
            self._env = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.DISABLED)
        obs_spec, self._convert = describe_observations(self._env.single_observation_space)
        self.spec = EnvSpec(name, obs_spec, self._describe_actions(), None, frames_per_step)
        self._reward_clip = reward_clip
        self._terminal_on_life_loss = terminal_on_life_loss
        self._max_episode_steps = max_episode_steps
        self._meter = EpisodeMeter(self.num_envs)
        self._journal = Journal(self.num_envs, self.spec.action, seed, reseed_after_steps)
        self._lives: Array = np.zeros(self.num_envs, np.int64)
        self._frames: Array = np.zeros(self.num_envs, np.int64)
        self._pending: Array | None = None
        self._obs: Any = None
        self._reset(np.ones(self.num_envs, bool), np.asarray(self._journal.row_seeds(), np.int64))

    def observe(self) -> Obs:
        obs: Obs = self._obs
        return obs

    def send(self, action: Array) -> None:
        if self._pending is not None:
            raise RuntimeError("send called twice without recv")
        checked = check_action(action, self.spec.action, self.num_envs)
        self._journal.append(checked)
        self._start(checked)

    def recv(self) -> EnvStep:
        if self._pending is None:
            raise RuntimeError("recv called without send")
        lives_before = self._lives
        next_obs, score, over, cut, lost = self._receive()
        terminated = over | (self._lives < lives_before) if self._terminal_on_life_loss else over
        ended = over | cut | lost
        episodes = self._meter.finish(ended & ~lost, self._frames)
        if lost.any():
            next_obs = _take_rows(next_obs, self._obs, lost)  # where it went nobody knows: the last that was seen
            self._restart(lost)
        self._obs = next_obs
        if ended.any():
            self._reset(ended, self._journal.next_seeds(ended, forced=lost))
        return EnvStep(
            obs=self._obs,
            next_obs=next_obs,
            reward=(np.sign(score) if self._reward_clip else score).astype(np.float32),
            terminated=terminated,
            truncated=(cut | lost) & ~terminated,
            reset=ended,
            episodes=episodes,
        )

    def snapshot(self) -> dict[str, Any]:
        if self._pending is not None:
            raise RuntimeError("snapshot needs nothing in flight: call recv first")
        return {
            "kind": "gymnasium",
            "name": self.spec.name,
            "journal": self._journal.state_dict(),
            "meter": self._meter.state_dict(),
            "obs": self._obs,
        }

    def restore(self, state: dict[str, Any]) -> None:
        if state.get("kind") != "gymnasium" or state.get("name") != self.spec.name:
            saved = f"{state.get('kind')} {state.get('name') or state.get('game')}"
            raise CheckpointError(f"the saved environments are {saved}, these are gymnasium {self.spec.name}")
        self._journal.load_state_dict(state["journal"])
        self._journal.replay(self._replay_step, self._reset)
        self._meter.load_state_dict(state["meter"])
        if not _equal(self._obs, state["obs"]):
            raise CheckpointError(
                f"the environment {self.spec.name} did not repeat itself: same seed and actions led elsewhere, "
                "so this run cannot go on exactly where it was saved"
            )
        if self._captures():
            self.pop_frames()

    def close(self) -> None:
        self._env.close()

    @property
    def restarts(self) -> int:
        """Workers that were started anew because they crashed or hung."""
        return self._env.restarts if isinstance(self._env, WorkerRows) else 0

    @property
    def fps(self) -> int:
        """Pictures per second at which ``pop_frames`` shows real speed."""
        return int(self._first_row().get_wrapper_attr("capture_fps"))

    def pop_frames(self) -> list[Array]:
        """RGB pictures of row 0 since the last call; the environment must have been made with capture."""
        frames: list[Array] = self._first_row().get_wrapper_attr("pop_frames")()
        return frames

    def _captures(self) -> bool:
        return isinstance(self._env, SyncVectorEnv) and self._env.envs[0].has_wrapper_attr("pop_frames")

    def _first_row(self) -> gymnasium.Env[Any, Any]:
        if not isinstance(self._env, SyncVectorEnv) or not self._captures():
            raise UsageError("pictures were not asked for: make the environment with capture=True, without workers")
        return self._env.envs[0]

    def _start(self, action: Array) -> None:
        self._pending = action
        space = self._env.single_action_space
        start = int(space.start) if isinstance(space, gymnasium.spaces.Discrete) else 0
        if start:
            self._pending = action + start
        if isinstance(self._env, WorkerRows):
            self._env.step_async(self._pending)

    def _receive(self) -> tuple[Obs, Array, Array, Array, Array]:
        """Successor, raw reward, games over, games cut by a limit, rows that gave no answer."""
        lost = np.zeros(self.num_envs, bool)
        if isinstance(self._env, WorkerRows):
            answer = self._env.step_wait()
            obs, score, over, cut, info = answer.obs, answer.reward, answer.terminated, answer.truncated, answer.info
            lost = answer.lost
        else:
            obs, score, over, cut, info = self._env.step(self._pending)
        self._pending = None
        self._meter.add(score)
        self._lives = _fill(info, "lives", self._lives)
        self._frames = _fill(info, "episode_frame_number", self._meter.length_steps * self.spec.frames_per_step)
        over, cut = over.copy(), cut.copy()
        if self._max_episode_steps is not None:
            cut |= self._meter.length_steps >= self._max_episode_steps
        return self._convert(obs), np.array(score), over, cut & ~over & ~lost, lost

    def _restart(self, rows: Array) -> None:
        assert isinstance(self._env, WorkerRows)
        self._env.restart(rows)
        self._meter.clear(rows)

    def _reset_workers(self, env: WorkerRows, rows: Array, seeds: Array) -> RowStep:
        """Until every row has begun: one that is lost on the way begins with another seed."""
        answer = env.reset(rows, seeds, unseeded=UNSEEDED)
        self._lives = _fill(answer.info, "lives", self._lives)
        while answer.lost.any():
            lost = answer.lost
            env.restart(lost)
            answer = env.reset(lost, self._journal.next_seeds(lost, forced=lost), unseeded=UNSEEDED)
            self._lives = _fill(answer.info, "lives", self._lives)
        return answer

    def _reset(self, rows: Array, seeds: Array) -> None:
        if isinstance(self._env, WorkerRows):
            answer = self._reset_workers(self._env, rows, seeds)
            obs, info = answer.obs, answer.info
        else:
            seed_list = [None if seed == UNSEEDED else int(seed) for seed in seeds]
            obs, info = self._env.reset(seed=seed_list, options={"reset_mask": rows.copy()})
        self._obs = self._convert(obs)
        self._lives = _fill(info, "lives", self._lives)
        self._meter.clear(rows)

    def _replay_step(self, action: Array) -> Array:
        self._start(action.astype(np.int64) if isinstance(self.spec.action, DiscreteActions) else action)
        self._obs, _, over, cut, lost = self._receive()
        if lost.any():
            raise RetrogradError(
                f"environment rows {np.flatnonzero(lost).tolist()} of {self.spec.name} failed while they were brought "
                "back to where they were saved"
            )
        ended: Array = over | cut
        return ended

    def _describe_actions(self) -> Any:
        names: tuple[str, ...] = ()
        if isinstance(self._env, SyncVectorEnv) and hasattr(self._env.envs[0].unwrapped, "get_action_meanings"):
            names = tuple(self._env.envs[0].unwrapped.get_action_meanings())
        return describe_actions(self._env.single_action_space, names)


def _take_rows(into: Any, source: Any, rows: Array) -> Any:
    """``into`` with ``rows`` as they are in ``source``."""
    if isinstance(into, dict):
        return {key: _take_rows(into[key], source[key], rows) for key in into}
    mixed = into.copy()
    mixed[rows] = source[rows]
    return mixed


def _fill(info: dict[str, Any], key: str, otherwise: Array) -> Array:
    """[N] values of an info entry, ``otherwise`` where a row did not report it."""
    if key not in info:
        return otherwise
    filled: Array = np.where(info["_" + key], info[key], otherwise)
    return filled


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_equal(left[key], right[key]) for key in left)
    return bool(np.array_equal(left, right, equal_nan=np.asarray(left).dtype.kind == "f"))
