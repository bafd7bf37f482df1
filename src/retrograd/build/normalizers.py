"""Running statistics of observations and rewards: gathered on the training rows, frozen in evaluation."""

from __future__ import annotations

from typing import Any

from retrograd.config import Config
from retrograd.core.protocols import VecEnv
from retrograd.core.types import Obs
from retrograd.envs.wrappers import NormalizeObservations, NormalizeRewards, RunningMeanStd, standardize


class Normalizers:
    """A part of the checkpoint; true if there is anything to normalize."""

    def __init__(self, *, observations: bool, rewards: bool, gamma: float) -> None:
        self._observations, self._rewards, self._gamma = observations, rewards, gamma
        self._wrappers: dict[str, NormalizeObservations | NormalizeRewards] = {}  # of the training rows
        self._loaded: dict[str, Any] = {}

    @classmethod
    def of(cls, config: Config) -> Normalizers:
        training = config["training"]
        return cls(
            observations=training["normalize_observations"],
            rewards=training["normalize_rewards"],
            gamma=config["agent"]["gamma"],
        )

    def __bool__(self) -> bool:
        return self._observations or self._rewards

    def wrap_training(self, envs: VecEnv) -> VecEnv:
        """Statistics go on from those that were loaded."""
        if self._observations:
            envs = self._wrappers["observations"] = NormalizeObservations(envs)
        if self._rewards:
            envs = self._wrappers["rewards"] = NormalizeRewards(envs, gamma=self._gamma)
        self._load_wrappers()
        return envs

    def wrap_evaluation(self, envs: VecEnv) -> VecEnv:
        """Observations as the agent knows them, by statistics that stand still; scores were never changed."""
        if not self._observations:
            return envs
        wrapped = NormalizeObservations(envs)
        wrapped.freeze()
        nothing_seen = RunningMeanStd(wrapped.rms.mean.shape).state_dict()
        wrapped.load_statistics(self.state_dict().get("observations", nothing_seen))
        return wrapped

    def normalize(self, obs: Obs) -> Obs:
        """Observations from outside, such as a user's own environment."""
        if not self._observations or "observations" not in (known := self.state_dict()):
            return obs
        statistics = RunningMeanStd()
        statistics.load_state_dict(known["observations"])
        return standardize(obs, statistics)

    def state_dict(self) -> dict[str, Any]:
        return {**self._loaded, **{name: wrapper.statistics() for name, wrapper in self._wrappers.items()}}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._loaded = dict(state)
        self._load_wrappers()

    def _load_wrappers(self) -> None:
        for name, wrapper in self._wrappers.items():
            if name in self._loaded:
                wrapper.load_statistics(self._loaded[name])
