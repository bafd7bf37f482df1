"""The value-based agent: everything around a Q loss that all of them share.

A value-based algorithm *is* its loss and its head. This file adds what never changes: acting with an
explorer, importance weights, gradient norm, the finite gate, the optimizer and the target network.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from retrograd.agents.captured import HALF_TOLERANCE, TOLERANCE, Captured
from retrograd.agents.descent import Descent
from retrograd.core.gates import require_finite
from retrograd.core.protocols import Agent
from retrograd.core.schedules import Schedule
from retrograd.core.types import Array, Decision, Obs, Transitions, Update
from retrograd.networks.q_network import QNetwork
from retrograd.networks.statistics import screen_statistics, share_statistics

STATISTICS_EVERY = 8  # updates: what screens look like changes slowly, and every batch has new ones


@dataclass(frozen=True, slots=True)
class QLossOut:
    """What a Q loss returns."""

    per_sample: Tensor  # [B] not yet weighted
    priority: Tensor  # [B] how surprising each sample was
    q: Tensor  # [B, A] values of the batch's states, for the logs
    metrics: dict[str, Tensor] = field(default_factory=dict)


class QLoss(Protocol):
    """Pure: owns no network, no optimizer, no counter."""

    def __call__(self, online: QNetwork, target: QNetwork, batch: Transitions, /) -> QLossOut: ...


def at_action(values: Tensor, action: Tensor) -> Tensor:
    """[B, A, Z] → [B, Z], those of each row's action [B]."""
    return values.gather(1, action.view(-1, 1, 1).expand(-1, 1, values.shape[2])).squeeze(1)


class Explorer(Protocol):
    def choose(self, greedy: Any, num_envs: int, *, step: int) -> Array: ...


class ValueAgent(Agent):
    """DQN and everything that is DQN with another loss, head, layer, sampler or reader."""

    def __init__(
        self,
        network: QNetwork,
        loss: QLoss,
        optimizer: torch.optim.Optimizer,
        *,
        explorer: Explorer,
        eval_explorer: Explorer,
        target_update_updates: int,
        max_grad_norm: float | None,
        loss_reduction: str,
        lr: Schedule | None = None,
        noise_each_step: bool = False,
        scaler: torch.amp.GradScaler | None = None,
        recorded: bool = False,
        half_precision: bool = False,
    ) -> None:
        self.online = network
        self.target = copy.deepcopy(network).requires_grad_(False)
        self._statistics = screen_statistics([network])
        share_statistics(network, self.target)
        self.loss = loss
        self.optimizer = optimizer
        self.explorer = explorer
        self.eval_explorer = eval_explorer
        self.target_update_updates = target_update_updates
        self.loss_reduction = loss_reduction
        self.lr = lr  # of each step; None leaves the optimizer's own
        self.noise = network.noise
        self.noise_each_step = noise_each_step  # else the noise of acting is held from one update to the next
        self.updates = 0
        self.device = next(network.parameters()).device
        self.descent = Descent(optimizer, network.parameters(), max_grad_norm=max_grad_norm, scaler=scaler)
        # recorded once and replayed, where the device can: everything up to the gradients
        self._compute: Callable[[Transitions], dict[str, Tensor]] = self._learn_from
        if recorded:
            tolerance = HALF_TOLERANCE if half_precision else TOLERANCE
            self._compute = Captured(self._learn_from, self.descent.gradients, tolerance=tolerance)
        self.parts = {"online": network, "target": self.target, "optimizer": optimizer, "counters": _Counters(self)}
        if self.noise is not None:
            self.parts["noise"] = self.noise
        if scaler is not None:
            self.parts["scaler"] = scaler

    def act(self, obs: Obs, state: Any = None, *, step: int, explore: bool) -> Decision:
        explorer = self.explorer if explore else self.eval_explorer
        num_envs = len(next(iter(obs.values()))) if isinstance(obs, dict) else len(obs)
        if explore and self.noise is not None and self.noise_each_step:
            self.noise.release()
        return Decision(explorer.choose(lambda: self.greedy(obs, noisy=explore), num_envs, step=step))

    @torch.no_grad()
    def greedy(self, obs: Obs, *, noisy: bool = False) -> Array:
        """The best action of each row [N], by the network without its noise unless asked otherwise."""
        return self.online.get_q_values(self._to_device(obs), noisy=noisy).argmax(1).cpu().numpy()

    def update(self, batch: Transitions, *, step: int) -> Update:
        if self.updates % STATISTICS_EVERY == 0:
            for statistics in self._statistics:
                assert isinstance(batch.obs, Tensor)
                statistics.see(batch.obs)
        figures = self._compute(batch)
        objective, priority = figures.pop("objective"), figures.pop("priority")
        require_finite(
            step,
            batch=batch,
            weights=self.descent.params,
            q=figures["max_q"],
            loss=objective,
            priority=priority.sum(),
            gradient=self.descent.gated(figures["grad_norm"]),
        )
        if self.lr is not None:
            for group in self.optimizer.param_groups:
                group["lr"] = self.lr(step)
        self.descent.step(figures["grad_norm"])
        self.updates += 1
        if self.noise is not None:
            self.noise.release()
        if self.updates % self.target_update_updates == 0:
            self.sync_target()
        return Update({**figures}, priority)

    def _learn_from(self, batch: Transitions) -> dict[str, Tensor]:
        """Leaves the gradients with the weights; returns figures, with what was minimized and the new priorities."""
        out = self.loss(self.online, self.target, batch)
        weighted = out.per_sample * batch.weight
        objective = weighted.sum() if self.loss_reduction == "sum" else weighted.mean()
        return {
            "grad_norm": self.descent.backward(objective),
            "objective": objective.detach(),
            "priority": out.priority.detach(),
            "loss": out.per_sample.detach().mean(),
            "mean_q": out.q.mean(),
            "max_q": out.q.amax(),
            **out.metrics,
        }

    @torch.no_grad()
    def sync_target(self) -> None:
        """Copy the online network into the target network."""
        for target, online in zip(self.target.state_dict().values(), self.online.state_dict().values(), strict=True):
            target.copy_(online)

    def metrics(self, step: int) -> dict[str, float]:
        schedules = {"epsilon": getattr(self.explorer, "epsilon", None), "learning_rate": self.lr}
        return {name: float(schedule(step)) for name, schedule in schedules.items() if schedule is not None}

    def _to_device(self, obs: Obs) -> Any:
        if isinstance(obs, dict):
            return {name: torch.from_numpy(array).to(self.device) for name, array in obs.items()}
        return torch.from_numpy(obs).to(self.device)


class _Counters:
    """The agent's counters as a part of the checkpoint."""

    def __init__(self, agent: ValueAgent) -> None:
        self._agent = agent

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self._agent.updates}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._agent.updates = int(state["updates"])
