"""NaN and infinity at random moments, in every agent: caught before the optimizer's step, never saved, dumped.

REQ RUN-4. What is poisoned goes round: an observation, a reward, the loss, a gradient, a weight.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from retrograd.build import build_trainer
from retrograd.config import ConfigManager
from retrograd.core.errors import FailureGate
from retrograd.training.checkpoint import load_newest

EVERY = [
    "env=cartpole",
    "training.num_envs=2",
    "training.total_env_frames=4000",
    "training.light_eval_every_frames=null",
    "training.full_eval_every_frames=null",
    "training.log_every_steps=200",
    "eval.num_envs=1",
    "hardware.torch_threads=1",
    "hardware.device=cpu",
]
VALUE = [
    "training.warmup_random_steps=20",
    "agent.replay_start_size=20",
    "agent.update_frequency=2",
    "agent.batch_size=8",
    "replay.capacity=500",
]
AGENTS = {
    **{name: [f"agent={name}", *VALUE] for name in ("dqn", "double", "c51", "qr_dqn", "iqn", "munchausen", "rainbow")},
    "pqn": ["agent=pqn", "agent.rollout_steps=8", "agent.minibatches=2", "agent.epochs=2"],
    "a2c": ["agent=a2c"],
    "ppo": ["agent=ppo", "agent.rollout_steps=8", "agent.minibatches=2", "agent.epochs=2"],
    "recurrent_ppo": ["agent=recurrent_ppo", "agent.rollout_steps=8", "agent.minibatches=2", "agent.hidden_size=8"],
}
POISONS = ("observation", "reward", "loss", "gradient", "weight")


class Poisoned(gymnasium.Wrapper):
    """CartPole that says something impossible once, at step ``at``."""

    at: dict[str, int]
    steps = 0

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.steps += 1
        if self.steps == self.at.get("observation"):
            obs = np.array(obs)
            obs[2] = np.inf
        if self.steps == self.at.get("reward"):
            reward = float("nan")
        return obs, reward, terminated, truncated, info


def poison_update(agent: Any, poison: str, at: int) -> dict[str, Any]:
    """Let the ``at``-th update meet ``poison``; the weights it began with are noted."""
    update, noted = agent.update, {"calls": 0}
    params = [param for group in optimizer_of(agent).param_groups for param in group["params"]]

    def poisoned(batch: Any, *, step: int) -> Any:
        noted["calls"] += 1
        if noted["calls"] != at:
            return update(batch, step=step)
        if poison == "weight":
            params[0].data.view(-1)[0] = float("nan")
        noted["before"] = [param.detach().clone() for param in params]
        hook = params[-1].register_hook(lambda grad: grad * float("nan")) if poison == "gradient" else None
        if poison == "loss":
            batch = spoiled(batch)
        try:
            return update(batch, step=step)
        finally:
            if hook is not None:
                hook.remove()
            noted["after"] = [param.detach().clone() for param in params]

    agent.update = poisoned
    return noted


def spoiled(batch: Any) -> Any:
    """A batch whose numbers are fine one by one and whose loss is not."""
    if hasattr(batch, "steps"):  # recurrent
        return replace(batch, steps=spoiled(batch.steps))
    if hasattr(batch, "returns"):
        return replace(batch, returns=torch.full_like(batch.returns, 3e38))
    return replace(batch, reward=torch.full_like(batch.reward, 3e38), weight=torch.full_like(batch.weight, 3e38))


def optimizer_of(agent: Any) -> torch.optim.Optimizer:
    return agent.learner.optimizer if hasattr(agent, "learner") else agent.optimizer


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        return [tensor for inner in value.values() for tensor in tensors(inner)]
    if isinstance(value, list | tuple):
        return [tensor for inner in value for tensor in tensors(inner)]
    return [value] if isinstance(value, torch.Tensor) and value.is_floating_point() else []


def inject(name: str, poison: str, at: int, folder: Path) -> str:
    """One poisoned run; the message of the gate that caught it."""
    config = ConfigManager(None).compose(
        [*EVERY, *AGENTS[name], f"output_dir={folder}", f"run_name={name}-{poison}-{at}", f"seed={at}"]
    )

    def make() -> gymnasium.Env[Any, Any]:
        env = Poisoned(gymnasium.make("CartPole-v1"))
        env.at = {poison: 30 + at}
        return env

    trainer = build_trainer(config, env=make, quiet=True)
    noted = poison_update(trainer.agent, poison, 1 + at // 4) if poison not in ("observation", "reward") else {}
    try:
        trainer.save_checkpoint()
        with pytest.raises(FailureGate, match="Failure gate triggered: non-finite") as caught:
            trainer.train()
        if noted:
            assert all(
                torch.equal(old, new) or old.isnan().any()
                for old, new in zip(noted["before"], noted["after"], strict=True)
            )
        else:
            assert f"{poison} of environment row" in str(caught.value)
        assert all(torch.isfinite(tensor).all() for tensor in tensors(optimizer_of(trainer.agent).state_dict()))
        if poison == "weight":
            assert "weight" in str(caught.value)
            with pytest.raises(FailureGate, match="non-finite weight in"):
                trainer.save_checkpoint()
        saved = load_newest(trainer.folder)
        agent_parts = {key: saved.parts[key] for key in trainer.agent.parts}
        assert all(torch.isfinite(tensor).all() for tensor in tensors(agent_parts))
        report = json.loads((trainer.folder / "failure.json").read_text())
        assert report["error"] == str(caught.value)
        with np.load(trainer.folder / report["batch"], allow_pickle=False) as dump:
            assert len(dump.files) >= 3
        return str(caught.value)
    finally:
        trainer.close()


@pytest.mark.parametrize("name", ["dqn", "rainbow", "pqn", "ppo", "recurrent_ppo"])
def test_every_poison_is_caught_once(name: str, quick_path: Path) -> None:
    kinds = POISONS if name in ("dqn", "ppo") else ("gradient",)
    for number, poison in enumerate(kinds):
        message = inject(name, poison, 3 + number, quick_path)
        assert poison in message or poison == "loss"


@pytest.mark.faults
@pytest.mark.parametrize("name", AGENTS)
def test_twenty_random_steps(name: str, quick_path: Path, record_property: Any) -> None:
    steps = np.random.default_rng(sum(map(ord, name))).choice(100, 20, replace=False)
    poisons = [(POISONS[number % len(POISONS)], at) for number, at in enumerate(steps.tolist())]
    caught = sum("non-finite" in inject(name, poison, at, quick_path) for poison, at in poisons)
    assert caught == len(poisons)
    record_property("figure", f"{caught} of {len(poisons)} caught before the optimizer's step, none saved")
