"""Deep reinforcement learning on Atari and anything with the Gymnasium interface.

Names are loaded when they are first used, so that ``import retrograd`` and ``retrograd --help`` stay quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "A2C": "api",
    "A3C": "api",
    "C51": "api",
    "DQN": "api",
    "DoubleDQN": "api",
    "IMPALA": "api",
    "IQN": "api",
    "Learner": "api",
    "MunchausenDQN": "api",
    "PPO": "api",
    "PQN": "api",
    "QRDQN": "api",
    "Rainbow": "api",
    "RandomPlayer": "api",
    "evaluate_checkpoint": "api",
    "resume": "api",
    "train": "api",
    "BaseAgent": "agents",
    "BaseWrapper": "envs.wrappers",
    "ConfigManager": "config",
    "EnvironmentFactory": "envs.factory",
    "EpisodeBuffer": "replay",
    "ExperimentRunner": "experiments.runner",
    "FrameStack": "envs.wrappers",
    "Logger": "tracking.logger",
    "MetricsTracker": "tracking.metrics",
    "NormalizeObservations": "envs.wrappers",
    "NormalizeRewards": "envs.wrappers",
    "Plotter": "experiments.plots",
    "PolicyNetwork": "networks",
    "QNetwork": "networks",
    "ReplayBuffer": "replay",
    "Trainer": "training.trainer",
    "ValueNetwork": "networks",
}

__all__ = ["__version__", *sorted(_PUBLIC)]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'retrograd' has no attribute {name!r}")
    return getattr(import_module(f"retrograd.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *_PUBLIC]
