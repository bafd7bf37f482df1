"""NaN and infinity put where they may come from: an observation, a reward, the loss, a gradient, a weight.

A module of its own, because the workers of A3C and IMPALA are new processes: what is to happen in them travels as a
function they can import, together with the environment they play.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

POISONS = ("observation", "reward", "loss", "gradient", "weight")
OUTSIDE = ("observation", "reward")  # what an environment says


class Poisoned(gymnasium.Wrapper):
    """An environment that says something impossible once, at step ``at``."""

    def __init__(self, env: gymnasium.Env[Any, Any], poison: str, at: int) -> None:
        super().__init__(env)
        self.poison, self.at, self.steps = poison, at, 0

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        if self.steps == self.at and self.poison == "observation":
            obs = np.array(obs)
            obs[2] = np.inf
        if self.steps == self.at and self.poison == "reward":
            reward = float("nan")
        return obs, reward, terminated, truncated, info


def make_env(poison: str, at: int) -> gymnasium.Env[Any, Any]:
    return Poisoned(gymnasium.make("CartPole-v1"), poison, 30 + at)


def make_env_of_worker(poison: str, at: int, notes: str) -> gymnasium.Env[Any, Any]:
    """The same for A3C, whose workers learn: theirs is the update that meets the poison."""
    if poison not in OUTSIDE and parent_process() is not None:
        poison_worker(poison, update_number(at), Path(notes))
    return make_env(poison, at)


def update_number(at: int) -> int:
    return 1 + at // 4


def poison_update(agent: Any, poison: str, at: int) -> dict[str, Any]:
    """Let the ``at``-th update meet ``poison``; the weights before and after it are noted."""
    update, noted = agent.update, {"calls": 0}
    params = [param for group in optimizer_of(agent).param_groups for param in group["params"]]

    def poisoned(batch: Any, *, step: int) -> Any:
        noted["calls"] += 1
        if noted["calls"] != at:
            return update(batch, step=step)
        if poison == "weight":
            params[0].data.view(-1)[0] = float("nan")
        noted["before"] = [param.detach().clone() for param in params]
        try:
            return meet(poison, params, batch, lambda batch: update(batch, step=step))
        finally:
            noted["after"] = [param.detach().clone() for param in params]

    agent.update = poisoned
    return noted


def poison_worker(poison: str, at: int, notes: Path) -> None:
    """The same inside a worker that learns on shared weights; it writes down whether anything was applied to them."""
    from retrograd.agents.policy import PolicyAgent

    update, calls = PolicyAgent.update, 0
    if update.__name__ == "poisoned":
        return  # the worker plays several games

    def poisoned(self: Any, batch: Any, *, step: int) -> Any:
        nonlocal calls
        calls += 1
        if calls != at:
            return update(self, batch, step=step)
        shared, applied = self.learner.shared, 0
        apply = shared.apply

        def counted(*arguments: Any, **options: Any) -> None:
            nonlocal applied
            applied += 1
            apply(*arguments, **options)

        if poison == "weight":
            with shared.held():
                shared.weights[0].view(-1)[0] = float("nan")
            shared.copy_to(self.network)
        shared.apply = counted
        try:
            return meet(poison, list(self.network.parameters()), batch, lambda batch: update(self, batch, step=step))
        finally:
            notes.mkdir(parents=True, exist_ok=True)
            (notes / f"{os.getpid()}.json").write_text(json.dumps({"applied": applied}))

    PolicyAgent.update = poisoned  # type: ignore[method-assign]


def meet(poison: str, params: list[torch.Tensor], batch: Any, update: Callable[[Any], Any]) -> Any:
    """One update with a gradient or a batch that is poisoned, if that is what is asked for."""
    hook = params[-1].register_hook(lambda grad: grad * float("nan")) if poison == "gradient" else None
    try:
        return update(spoiled(batch) if poison == "loss" else batch)
    finally:
        if hook is not None:
            hook.remove()


def spoiled(batch: Any) -> Any:
    """A batch whose numbers are fine one by one and whose loss is not."""
    if hasattr(batch, "steps"):  # recurrent
        return replace(batch, steps=spoiled(batch.steps))
    if hasattr(batch, "returns"):
        return replace(batch, returns=torch.full_like(batch.returns, 3e38))
    if hasattr(batch, "successor_obs"):  # IMPALA's: V-trace adds them up, their square is too large
        return replace(batch, reward=np.full_like(batch.reward, 1e30))
    return replace(batch, reward=torch.full_like(batch.reward, 3e38), weight=torch.full_like(batch.weight, 3e38))


def optimizer_of(agent: Any) -> torch.optim.Optimizer:
    return agent.learner.optimizer if hasattr(agent, "learner") else agent.optimizer


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        return [tensor for inner in value.values() for tensor in tensors(inner)]
    if isinstance(value, list | tuple):
        return [tensor for inner in value for tensor in tensors(inner)]
    return [value] if isinstance(value, torch.Tensor) and value.is_floating_point() else []
