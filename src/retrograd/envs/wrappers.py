"""Wrappers round a ``VecEnv``: frame stack, normalized observations, normalized rewards.

Statistics are part of ``state_dict`` and of ``snapshot``; ``freeze`` stops them for evaluation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from retrograd.core.errors import UsageError
from retrograd.core.protocols import VecEnv
from retrograd.core.types import Array, ArraySpec, EnvStep, Obs

OBSERVATION_CLIP = 10.0
EPSILON = 1e-8


class RunningMeanStd:
    """Mean and variance of everything seen, merged batch by batch (Chan et al. 1979), in float64."""

    def __init__(self, shape: tuple[int, ...] = ()) -> None:
        self.mean = np.zeros(shape, np.float64)
        self.var = np.ones(shape, np.float64)
        self.count = 0

    def update(self, batch: Array) -> None:  # [N, *shape]
        added = len(batch)
        if not added:
            return
        mean, var = batch.mean(axis=0, dtype=np.float64), batch.var(axis=0, dtype=np.float64)
        total = self.count + added
        delta = mean - self.mean
        squares = self.var * self.count + var * added + delta**2 * (self.count * added / total)
        self.mean, self.var, self.count = self.mean + delta * (added / total), squares / total, total

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean.copy(), "var": self.var.copy(), "count": self.count}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.mean = np.asarray(state["mean"]).astype(np.float64)
        self.var = np.asarray(state["var"]).astype(np.float64)
        self.count = int(state["count"])


class BaseWrapper:
    """A ``VecEnv`` that forwards everything; subclasses change what they are about."""

    def __init__(self, env: VecEnv) -> None:
        self.env = env
        self.num_envs = env.num_envs
        self.spec = env.spec
        self.frozen = False

    def observe(self) -> Obs:
        return self.env.observe()

    def send(self, action: Array) -> None:
        self.env.send(action)

    def recv(self) -> EnvStep:
        return self.env.recv()

    def snapshot(self) -> dict[str, Any]:
        return {"inner": self.env.snapshot(), "own": self.own_state()}

    def restore(self, state: dict[str, Any]) -> None:
        self.env.restore(state["inner"])
        self.load_own_state(state["own"])

    def close(self) -> None:
        self.env.close()

    @property
    def restarts(self) -> int:
        """As ``GymVec.restarts``; rows without workers have none."""
        return int(getattr(self.env, "restarts", 0))

    @property
    def fps(self) -> int:
        return int(self.env.fps)  # type: ignore[attr-defined]  # only environments that capture have it

    def pop_frames(self) -> list[Array]:
        frames: list[Array] = self.env.pop_frames()  # type: ignore[attr-defined]
        return frames

    def freeze(self) -> None:
        """Statistics, here and in the wrappers inside, change no more."""
        self.frozen = True
        if isinstance(self.env, BaseWrapper):
            self.env.freeze()

    def statistics(self) -> dict[str, Any]:
        """What evaluation needs of this wrapper: running statistics, not the state of games."""
        return {}

    def load_statistics(self, state: dict[str, Any]) -> None:
        """Take over what ``statistics`` gave."""

    def state_dict(self) -> dict[str, Any]:
        """Statistics of this wrapper and those inside."""
        inner = self.env.state_dict() if isinstance(self.env, BaseWrapper) else {}
        return {"inner": inner, "statistics": self.statistics()}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        if isinstance(self.env, BaseWrapper):
            self.env.load_state_dict(state["inner"])
        self.load_statistics(state["statistics"])

    def own_state(self) -> dict[str, Any]:
        """Everything of this wrapper that an exact continuation needs."""
        return self.statistics()

    def load_own_state(self, state: dict[str, Any]) -> None:
        self.load_statistics(state)


class FrameStack(BaseWrapper):
    """The last ``frames`` observations [N, frames, ...], newest last, zeros before a game's first.

    A lost life does not clear the stack: the game goes on.
    """

    def __init__(self, env: VecEnv, frames: int) -> None:
        super().__init__(env)
        spec = _array_spec(env, "FrameStack")
        if frames < 1:
            raise UsageError(f"frame_stack is {frames}, but must be at least 1")
        if env.spec.frame_stack is not None:
            raise UsageError("the environment stacks frames already")
        self.spec = replace(env.spec, obs=replace(spec, shape=(frames, *spec.shape)), frame_stack=frames)
        self._stack = self._begin(np.zeros((self.num_envs, frames, *spec.shape), spec.dtype), env.observe())

    def observe(self) -> Obs:
        return self._stack

    def recv(self) -> EnvStep:
        step = self.env.recv()
        next_obs = np.concatenate([self._stack[:, 1:], np.asarray(step.next_obs)[:, None]], axis=1)
        obs = next_obs
        if step.reset.any():
            obs = next_obs.copy()
            obs[step.reset] = self._begin(np.zeros_like(obs[step.reset]), np.asarray(step.obs)[step.reset])
        self._stack = obs
        return replace(step, obs=obs, next_obs=next_obs)

    def own_state(self) -> dict[str, Any]:
        return {"stack": self._stack}

    def load_own_state(self, state: dict[str, Any]) -> None:
        self._stack = np.array(state["stack"])

    @staticmethod
    def _begin(zeros: Array, newest: Any) -> Array:
        zeros[:, -1] = newest
        return zeros


def standardize(
    obs: Obs, statistics: RunningMeanStd, *, clip: float = OBSERVATION_CLIP, epsilon: float = EPSILON
) -> Array:
    """Mean 0 and variance 1 by the statistics, cut to ±``clip``."""
    scaled = (np.asarray(obs) - statistics.mean) / np.sqrt(statistics.var + epsilon)
    return np.clip(scaled, -clip, clip).astype(np.float32)


class NormalizeObservations(BaseWrapper):
    """Observations with mean 0 and variance 1 by running statistics, cut to ±``clip``."""

    def __init__(self, env: VecEnv, *, clip: float = OBSERVATION_CLIP, epsilon: float = EPSILON) -> None:
        super().__init__(env)
        spec = _array_spec(env, "NormalizeObservations")
        if spec.dtype.kind in "ub" and len(spec.shape) == 3:
            raise UsageError("NormalizeObservations is for vectors; images and boards are read as they are")
        self.spec = replace(env.spec, obs=ArraySpec(spec.shape, np.dtype(np.float32), -clip, clip))
        self.rms = RunningMeanStd(spec.shape)
        self._clip, self._epsilon = clip, epsilon
        self.rms.update(np.asarray(env.observe()))
        self._obs = self._normalize(env.observe())

    def observe(self) -> Obs:
        return self._obs

    def recv(self) -> EnvStep:
        step = self.env.recv()
        if not self.frozen:
            self.rms.update(np.asarray(step.next_obs))
            self.rms.update(np.asarray(step.obs)[step.reset])
        next_obs = self._normalize(step.next_obs)
        self._obs = self._normalize(step.obs) if step.reset.any() else next_obs
        return replace(step, obs=self._obs, next_obs=next_obs)

    def statistics(self) -> dict[str, Any]:
        return self.rms.state_dict()

    def load_statistics(self, state: dict[str, Any]) -> None:
        self.rms.load_state_dict(state)
        self._obs = self._normalize(self.env.observe())

    def own_state(self) -> dict[str, Any]:
        return {"rms": self.rms.state_dict(), "obs": self._obs}

    def load_own_state(self, state: dict[str, Any]) -> None:
        self.rms.load_state_dict(state["rms"])
        self._obs = np.array(state["obs"])

    def _normalize(self, obs: Obs) -> Array:
        return standardize(obs, self.rms, clip=self._clip, epsilon=self._epsilon)


class NormalizeRewards(BaseWrapper):
    """Rewards divided by the running deviation of the discounted return, cut to ±``clip``.

    The mean is left alone: shifting rewards would change which episode length is best.
    """

    def __init__(self, env: VecEnv, *, gamma: float = 0.99, clip: float = 10.0, epsilon: float = 1e-8) -> None:
        super().__init__(env)
        if not 0.0 <= gamma <= 1.0:
            raise UsageError(f"gamma is {gamma}, but must be from 0 to 1")
        self.rms = RunningMeanStd()
        self._gamma, self._clip, self._epsilon = gamma, clip, epsilon
        self._returns = np.zeros(self.num_envs, np.float64)  # [N]

    def recv(self) -> EnvStep:
        step = self.env.recv()
        if not self.frozen:
            self._returns = self._returns * self._gamma + step.reward
            self.rms.update(self._returns)
            self._returns[step.terminated | step.truncated | step.reset] = 0.0
        scaled = step.reward / np.sqrt(self.rms.var + self._epsilon)
        return replace(step, reward=np.clip(scaled, -self._clip, self._clip).astype(np.float32))

    def statistics(self) -> dict[str, Any]:
        return self.rms.state_dict()

    def load_statistics(self, state: dict[str, Any]) -> None:
        self.rms.load_state_dict(state)

    def own_state(self) -> dict[str, Any]:
        return {"rms": self.rms.state_dict(), "returns": self._returns.copy()}

    def load_own_state(self, state: dict[str, Any]) -> None:
        self.rms.load_state_dict(state["rms"])
        self._returns = np.array(state["returns"], np.float64)


def _array_spec(env: VecEnv, wrapper: str) -> ArraySpec:
    spec = env.spec.obs
    if isinstance(spec, dict):
        raise UsageError(f"{wrapper} needs one array per observation, {env.spec.name} has {', '.join(spec)}")
    return spec
