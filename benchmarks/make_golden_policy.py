"""Writes tests/golden/ppo_sb3.npz: losses and gradients of Stable-Baselines3's PPO and A2C on one fixed rollout.

Needs ``stable-baselines3`` in an environment of its own; the tests read only the file. Weights, rollout and answers
are all in it, so that our side needs nothing but numpy and torch.

    python benchmarks/make_golden_policy.py tests/golden/ppo_sb3.npz
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import A2C, PPO

ROWS, STEPS, OBS, ACTIONS, DIMENSIONS = 4, 16, 6, 3, 2


class Silent(gymnasium.Env[Any, Any]):
    """Only its spaces matter: the rollout is made up."""

    def __init__(self, discrete: bool) -> None:
        self.observation_space = spaces.Box(-3.0, 3.0, (OBS,), np.float32)
        self.action_space = spaces.Discrete(ACTIONS) if discrete else spaces.Box(-1.0, 1.0, (DIMENSIONS,), np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return np.zeros(OBS, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(OBS, np.float32), 0.0, False, False, {}


def answers(algorithm: str, discrete: bool) -> dict[str, np.ndarray]:
    """One gradient of the whole rollout, before any clipping of its norm."""
    torch.manual_seed(7)
    net = {"net_arch": {"pi": [16, 16], "vf": [16, 16]}, "activation_fn": torch.nn.ReLU}
    shared = {"n_steps": STEPS, "ent_coef": 0.01, "vf_coef": 0.5, "max_grad_norm": 1e9, "learning_rate": 0.0}
    env = Silent(discrete)
    if algorithm == "ppo":
        model: Any = PPO(
            "MlpPolicy", env, batch_size=STEPS * ROWS, n_epochs=1, clip_range=0.2, policy_kwargs=net, **shared
        )
    else:
        model = A2C("MlpPolicy", env, policy_kwargs=net, **shared)
    rng = np.random.default_rng(3)
    # a policy away from its first, nearly uniform one, so that gradients are not tiny
    with torch.no_grad():
        for param in model.policy.parameters():
            param.add_(torch.from_numpy(rng.normal(0, 0.03, param.shape).astype(np.float32)))
    buffer = model.rollout_buffer
    buffer.n_envs = ROWS
    buffer.reset()
    batch = ROWS * STEPS
    obs = rng.normal(size=(STEPS, ROWS, OBS)).astype(np.float32)
    action = rng.integers(ACTIONS, size=(STEPS, ROWS, 1)) if discrete else rng.normal(size=(STEPS, ROWS, DIMENSIONS))
    flat = torch.from_numpy(obs.reshape(batch, OBS))
    with torch.no_grad():
        taken = torch.from_numpy(action.reshape(batch, -1))
        value, log_prob, _ = model.policy.evaluate_actions(flat, taken.flatten().long() if discrete else taken.float())
    # played by a policy that was a little different: some ratios leave the clip range
    log_prob = log_prob.numpy() + rng.normal(0, 0.2, batch).astype(np.float32)
    buffer.observations[:] = obs
    buffer.actions[:] = action
    buffer.log_probs[:] = log_prob.reshape(STEPS, ROWS)
    buffer.values[:] = value.numpy().reshape(STEPS, ROWS) + rng.normal(0, 0.3, (STEPS, ROWS))
    buffer.advantages[:] = rng.normal(size=(STEPS, ROWS))
    buffer.returns[:] = buffer.advantages + buffer.values
    buffer.full, buffer.pos = True, STEPS
    given = {
        name: np.array(getattr(buffer, name), copy=True)
        for name in ("observations", "actions", "log_probs", "values", "advantages", "returns")
    }
    weights = {f"weight.{name}": param.detach().numpy().copy() for name, param in model.policy.named_parameters()}
    model._setup_learn(1)
    model.train()
    logged = model.logger.name_to_value
    wanted = {
        "policy_loss": logged["train/policy_gradient_loss" if algorithm == "ppo" else "train/policy_loss"],
        "value_loss": logged["train/value_loss"],
        "entropy_loss": logged["train/entropy_loss"],
    }
    if algorithm == "ppo":
        wanted |= {"approx_kl": logged["train/approx_kl"], "clip_fraction": logged["train/clip_fraction"]}
    gradients = {f"gradient.{name}": param.grad.numpy().copy() for name, param in model.policy.named_parameters()}
    return {**given, **weights, **gradients, **{name: np.float64(value) for name, value in wanted.items()}}


def main(path: Path) -> None:
    arrays = {}
    for algorithm in ("ppo", "a2c"):
        for kind in ("discrete", "continuous"):
            for name, array in answers(algorithm, kind == "discrete").items():
                arrays[f"{algorithm}.{kind}.{name}"] = array
    np.savez_compressed(path, **arrays)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/ppo_sb3.npz"))
