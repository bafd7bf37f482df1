"""Make tests/golden/qr_dqn_sb3.json: losses of sb3-contrib, and five updates of its QR-DQN from given weights.

Run it in an environment of its own; the tests read the file alone:
    python -m venv ENV && ENV/bin/pip install sb3-contrib==2.9.2 && ENV/bin/python benchmarks/make_golden_quantile.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import sb3_contrib
import torch
from sb3_contrib import QRDQN
from sb3_contrib.common.utils import quantile_huber_loss
from stable_baselines3.common.logger import configure
from stable_baselines3.common.type_aliases import ReplayBufferSamples

OUT = Path(__file__).parents[1] / "tests" / "golden" / "qr_dqn_sb3.json"
STATE, ACTIONS, QUANTILES, HIDDEN, BATCH, UPDATES, GAMMA, LR = 4, 3, 7, 8, 6, 5, 0.9, 0.01


class Shapes(gymnasium.Env):
    """Never played: only its spaces are asked for."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (STATE,), np.float32)
    action_space = gymnasium.spaces.Discrete(ACTIONS)

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        return np.zeros(STATE, np.float32), {}


def losses(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Three shapes in which no two sizes agree, so that a mixed-up axis cannot go unseen."""
    cases = []
    for batch, predicted, goal in ((6, 5, 7), (3, 8, 2), (1, 4, 9)):
        current = torch.tensor(rng.normal(0, 2, (batch, predicted)), requires_grad=True)
        target = torch.tensor(rng.normal(0, 2, (batch, goal)))
        # it always averages over the batch, so rows go in one by one
        rows = [quantile_huber_loss(current[i : i + 1], target[i : i + 1]) for i in range(batch)]
        loss = torch.stack(rows)
        loss.sum().backward()
        cases.append(
            {
                "predicted": current.detach().tolist(),
                "goal": target.tolist(),
                "loss": loss.detach().tolist(),
                "gradient": current.grad.tolist(),
            }
        )
    return cases


def updates(rng: np.random.Generator) -> dict[str, Any]:
    torch.manual_seed(1)
    model = QRDQN(
        "MlpPolicy",
        Shapes(),
        learning_rate=LR,
        gamma=GAMMA,
        batch_size=BATCH,
        max_grad_norm=None,
        policy_kwargs={"net_arch": [HIDDEN], "n_quantiles": QUANTILES},
        device="cpu",
    )
    model.set_logger(configure(None, []))
    with torch.no_grad():  # a target of its own, so that a goal from the online network would show
        for parameter in model.quantile_net_target.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    case: dict[str, Any] = {"gamma": GAMMA, "lr": LR, "before": _weights(model.quantile_net)}
    case["target"] = _weights(model.quantile_net_target)
    case["adam_eps"] = model.policy.optimizer.param_groups[0]["eps"]
    batches = [
        {
            "obs": rng.normal(size=(BATCH, STATE)),
            "action": rng.integers(ACTIONS, size=BATCH),
            "reward": rng.normal(size=BATCH),
            "ended": rng.random(BATCH) < 0.3,
            "next_obs": rng.normal(size=(BATCH, STATE)),
        }
        for _ in range(UPDATES)
    ]
    queue = iter(batches)

    def sample(*_: Any, **__: Any) -> ReplayBufferSamples:
        batch = next(queue)
        number = lambda name: torch.tensor(batch[name], dtype=torch.float32)  # noqa: E731
        return ReplayBufferSamples(
            observations=number("obs"),
            actions=torch.tensor(batch["action"])[:, None],
            next_observations=number("next_obs"),
            dones=number("ended")[:, None],
            rewards=number("reward")[:, None],
        )

    model.replay_buffer.sample = sample
    model._current_progress_remaining = 1.0
    model.train(gradient_steps=UPDATES, batch_size=BATCH)
    case["after"] = _weights(model.quantile_net)
    case["batches"] = [{key: np.asarray(value).tolist() for key, value in batch.items()} for batch in batches]
    return case


def _weights(network: torch.nn.Module) -> list[Any]:
    return [parameter.detach().tolist() for parameter in network.parameters()]


def main() -> None:
    rng = np.random.default_rng(7)
    content = {"made_with": f"sb3-contrib {sb3_contrib.__version__}", "losses": losses(rng), "updates": updates(rng)}
    OUT.write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
