"""PQN: parallel Q learning with λ-returns, without replay and without target network.

Gallici et al. 2025, arXiv:2407.04811.
Loss:  ½ (R_t - Q(s, a))²,  R_t = r_t + γ [λ R_{t+1} + (1 - λ) max_a' Q(s_{t+1}, a')], once for each rollout.
Differs from the paper: R is max_a Q(s_t, a) plus its generalized advantage, which is the same sum; at a time limit it
ends with the value of the true successor. Differs from the authors' JAX code: convolutions are normalized over channels
and pixels together (GroupNorm with one group), there over the channels at each pixel; weights start uniform in
±1/√fan_in, there by he_normal.
Defaults: the paper's Atari settings.  Eats Rollouts whose ``value`` is max_a Q; the network needs layer normalization.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from retrograd.agents.descent import Descent
from retrograd.core.gates import require_finite
from retrograd.core.protocols import Agent
from retrograd.core.schedules import Schedule
from retrograd.core.types import Array, Decision, Obs, Rollout, Update
from retrograd.networks.q_network import QNetwork


class ScheduledExplorer(Protocol):
    epsilon: Schedule

    def choose(self, greedy: Callable[[], Array], num_envs: int, *, step: int) -> Array: ...


class PQNAgent(Agent):
    """Goes over each rollout ``epochs`` times, one optimizer step for each minibatch."""

    def __init__(
        self,
        network: QNetwork,
        optimizer: torch.optim.Optimizer,
        *,
        explorer: ScheduledExplorer,
        eval_explorer: ScheduledExplorer,
        lr: Schedule,
        epochs: int,
        minibatches: int,
        max_grad_norm: float | None,
        minibatch_rng: np.random.Generator,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.network, self.optimizer, self.lr = network, optimizer, lr
        self.explorer, self.eval_explorer = explorer, eval_explorer
        self.epochs, self.minibatches = epochs, minibatches
        self.minibatch_rng = minibatch_rng
        self.updates = 0
        self.device = next(network.parameters()).device
        self._descent = Descent(optimizer, network.parameters(), max_grad_norm=max_grad_norm, scaler=scaler)
        self.parts = {"network": network, "optimizer": optimizer, "counters": _Counters(self)}
        if scaler is not None:
            self.parts["scaler"] = scaler

    def act(self, obs: Obs, state: Any = None, *, step: int, explore: bool) -> Decision:
        q = self._q_values(obs)  # [N, A]
        explorer = self.explorer if explore else self.eval_explorer
        action = explorer.choose(lambda: q.argmax(1), len(q), step=step)
        if not explore:
            return Decision(action)
        # a rollout wants log-probabilities, which a Q learner does not use
        return Decision(action, extras={"value": q.max(1), "log_prob": np.zeros(len(q), np.float32)})

    def greedy(self, obs: Obs) -> Array:
        """The best action of each row [N]."""
        best: Array = self._q_values(obs).argmax(1)
        return best

    def values(self, obs: Obs) -> Array:
        """max_a Q of each row [N]."""
        values: Array = self._q_values(obs).max(1)
        return values

    def update(self, batch: Rollout, *, step: int) -> Update:
        size = -(-batch.reward.numel() // self.minibatches)
        # schedules stand where the rollout began: a rate that falls to zero would waste the last one
        for group in self.optimizer.param_groups:
            group["lr"] = self.lr(step - batch.reward.numel())
        seen = [
            self._descend(part, step)
            for _ in range(self.epochs)
            for part in batch.minibatches(size, self.minibatch_rng)
        ]
        figures = torch.stack(seen)  # [updates, 4]
        names = ("loss", "mean_q", "max_q", "grad_norm")
        return Update(dict(zip(names, figures.mean(0).unbind(), strict=True)))

    def metrics(self, step: int) -> dict[str, float]:
        return {"epsilon": float(self.explorer.epsilon(step)), "learning_rate": float(self.lr(step))}

    def _descend(self, part: Rollout, step: int) -> Tensor:
        q = self.network(part.obs)  # [B, A]
        chosen = q.gather(1, part.action.long().unsqueeze(1)).squeeze(1)
        loss = (part.returns - chosen).square().mean().mul(0.5)
        grad_norm = self._descent.backward(loss)
        max_q = q.detach().amax()
        gated = self._descent.gated(grad_norm)
        require_finite(step, batch=part, weights=self._descent.params, q=max_q, loss=loss, gradient=gated)
        self._descent.step(grad_norm)
        self.updates += 1
        return torch.stack([loss.detach(), q.detach().mean(), max_q, grad_norm])

    @torch.no_grad()
    def _q_values(self, obs: Obs) -> Array:
        if isinstance(obs, dict):
            tensors: Any = {name: torch.from_numpy(array).to(self.device) for name, array in obs.items()}
        else:
            tensors = torch.from_numpy(obs).to(self.device)
        values: Array = self.network.get_q_values(tensors).cpu().numpy()
        return values


class _Counters:
    """The agent's counters as a part of the checkpoint."""

    def __init__(self, agent: PQNAgent) -> None:
        self._agent = agent

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self._agent.updates}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._agent.updates = int(state["updates"])
