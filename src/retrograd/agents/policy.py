"""The policy-gradient agent: everything around a policy loss that all of them share.

A policy-gradient algorithm *is* its loss. This file adds what never changes: acting by sampling, what the rollout has
to remember, epochs of minibatches, the learning rate's schedule, the gradient norm and the finite gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from retrograd.agents.descent import Descent, SplitDescent
from retrograd.core.gates import require_finite
from retrograd.core.protocols import Agent
from retrograd.core.schedules import Schedule
from retrograd.core.types import Array, Decision, Obs, Rollout, Update
from retrograd.networks.distributions import ActionDistribution
from retrograd.networks.policy import ActorCritic
from retrograd.networks.statistics import screen_statistics


@dataclass(frozen=True, slots=True)
class PolicyLossOut:
    """What a policy loss returns."""

    loss: Tensor  # what the optimizer goes down: the actor's part and the critic's
    actor: Tensor
    critic: Tensor
    approx_kl: Tensor  # from the policy that played to this one
    metrics: dict[str, Tensor]


class PolicyLoss(Protocol):
    """Pure: owns no network, no optimizer, no counter. ``step`` drives its schedules."""

    def __call__(self, policy: ActionDistribution, value: Tensor, batch: Rollout, /, *, step: int) -> PolicyLossOut: ...
    def coefficients(self, step: int) -> dict[str, float]: ...


RATE_FACTOR, MOST_SCALE = 1.5, 30.0  # steps of an adapted rate, and how far it may be from the schedule's
Evaluated = tuple[ActionDistribution, Tensor, Rollout]  # policy and value as the network sees a minibatch now


class PolicyLearner:
    """Goes over a rollout ``epochs`` times, one optimizer step for each minibatch.

    With a ``critic_optimizer`` the actor's and the critic's part of the loss have an optimizer each, also for the
    weights that they share.
    """

    def __init__(
        self,
        network: nn.Module,
        loss: PolicyLoss,
        optimizer: torch.optim.Optimizer,
        *,
        lr: Schedule,
        epochs: int,
        max_grad_norm: float | None,
        target_kl: float | None,
        adaptive_kl: Schedule | None = None,
        scaler: torch.amp.GradScaler | None = None,
        critic_optimizer: torch.optim.Optimizer | None = None,
    ) -> None:
        self.loss, self.optimizer, self.critic_optimizer, self.lr = loss, optimizer, critic_optimizer, lr
        self.epochs, self.target_kl, self.adaptive_kl = epochs, target_kl, adaptive_kl
        self.scale = 1.0  # of the rate, where it is adapted
        self.updates, self._scaler = 0, scaler
        self._descent: Descent | SplitDescent
        if critic_optimizer is None:
            self._descent = Descent(optimizer, network.parameters(), max_grad_norm=max_grad_norm, scaler=scaler)
        else:
            both = optimizer, critic_optimizer
            self._descent = SplitDescent(both, network.parameters(), max_grad_norm=max_grad_norm)

    def learn(self, minibatches: Callable[[], Iterable[Evaluated]], steps: Rollout, *, step: int) -> Update:
        """``minibatches`` begins an epoch; each is evaluated when it is asked for, with the newest weights."""
        # schedules stand where the rollout began: at its end a rate that falls to zero would waste the last one
        begun = step - steps.reward.numel()
        for optimizer in filter(None, (self.optimizer, self.critic_optimizer)):
            for group in optimizer.param_groups:
                group["lr"] = self.learning_rate(begun)
        seen: list[Tensor] = []
        names: list[str] = []
        for out, grad_norm in self._steps(minibatches, begun, step):
            figures = {**out.metrics, "loss": out.loss.detach(), "approx_kl": out.approx_kl, "grad_norm": grad_norm}
            names = list(figures)
            seen.append(torch.stack(list(figures.values())))
        table = torch.stack(seen)
        if self.adaptive_kl is not None:
            in_last_epoch = -(-len(seen) // self.epochs)
            self._adapt(float(table[-in_last_epoch:, names.index("approx_kl")].mean()), self.adaptive_kl(begun))
        metrics: dict[str, Tensor | float] = dict(zip(names, table.mean(0).unbind(), strict=True))
        return Update({**metrics, "explained_variance": _explained_variance(steps.value, steps.returns)})

    def learning_rate(self, step: int) -> float:
        return self.scale * self.lr(step)

    def _adapt(self, moved: float, wanted: float) -> None:
        """A rate for the next rollout that moves the policy about as far as wanted, by KL divergence."""
        if moved > 2 * wanted:
            self.scale = max(self.scale / RATE_FACTOR, 1 / MOST_SCALE)
        elif moved < wanted / 2:
            self.scale = min(self.scale * RATE_FACTOR, MOST_SCALE)

    def _steps(
        self, minibatches: Callable[[], Iterable[Evaluated]], begun: int, step: int
    ) -> Iterator[tuple[PolicyLossOut, Tensor]]:
        for _ in range(self.epochs):
            for policy, value, batch in minibatches():
                out = self.loss(policy, value, batch, step=begun)
                grad_norm = self._descent.backward(*self._parts(out))
                require_finite(
                    step,
                    batch=batch,
                    weights=self._descent.params,
                    value=value.detach().sum(),
                    loss=out.loss,
                    approx_kl=out.approx_kl,
                    gradient=self._descent.gated(grad_norm),
                )
                if self.target_kl is not None and out.approx_kl > self.target_kl:
                    self._descent.skip()
                    yield out, grad_norm
                    return
                self._descent.step(grad_norm)
                self.updates += 1
                yield out, grad_norm

    def _parts(self, out: PolicyLossOut) -> tuple[Tensor, ...]:
        """One loss for each optimizer."""
        return (out.loss,) if self.critic_optimizer is None else (out.actor, out.critic)

    def state_dict(self) -> dict[str, Any]:
        more: dict[str, Any] = {} if self._scaler is None else {"scaler": self._scaler.state_dict()}
        if self.critic_optimizer is not None:
            more["critic_optimizer"] = self.critic_optimizer.state_dict()
        if self.adaptive_kl is not None:
            more["scale"] = self.scale
        return {"optimizer": self.optimizer.state_dict(), "updates": self.updates, **more}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = int(state["updates"])
        self.scale = float(state.get("scale", 1.0))
        if self.critic_optimizer is not None:
            self.critic_optimizer.load_state_dict(state["critic_optimizer"])
        if self._scaler is not None and "scaler" in state:
            self._scaler.load_state_dict(state["scaler"])


class RolloutLearner(Protocol):
    """What a policy agent asks of its learner, wherever the weights are."""

    loss: PolicyLoss

    def learning_rate(self, step: int) -> float: ...

    @property
    def updates(self) -> int: ...
    def learn(self, minibatches: Callable[[], Iterable[Evaluated]], steps: Rollout, *, step: int) -> Update: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


class Sampling:
    """Where actions come from: drawn while exploring, and in evaluation drawn or the likeliest one."""

    def __init__(self, rng: np.random.Generator, eval_rng: np.random.Generator, *, sample_in_evaluation: bool) -> None:
        self.rng, self.eval_rng, self.sample_in_evaluation = rng, eval_rng, sample_in_evaluation

    def choose(self, policy: ActionDistribution, *, explore: bool) -> Array:
        if explore:
            return policy.sample(self.rng)
        return policy.sample(self.eval_rng) if self.sample_in_evaluation else policy.mode()


class ActorCriticAgent(Agent):
    """Plays by a network's policy, without memory; how it learns is up to those that are one."""

    def __init__(self, network: ActorCritic, learner: RolloutLearner, sampling: Sampling) -> None:
        self.network, self.learner, self.sampling = network, learner, sampling
        self.device = next(network.parameters()).device
        self.parts = {"network": network, "learner": learner}

    @property
    def updates(self) -> int:
        return self.learner.updates

    def act(self, obs: Obs, state: Any = None, *, step: int, explore: bool) -> Decision:
        return decide(self.network, self.sampling, obs, device=self.device, explore=explore)

    @torch.no_grad()
    def decide_greedily(self, obs: Obs, state: Any = None) -> Decision:
        """The likeliest action of each row, whatever evaluation does."""
        return Decision(self.network.actor.get_action(to_device(obs, self.device)))

    def metrics(self, step: int) -> dict[str, float]:
        return {"learning_rate": self.learner.learning_rate(step), **self.learner.loss.coefficients(step)}


class PolicyAgent(ActorCriticAgent):
    """PPO and A2C, and everything that is one of them with another loss or network."""

    def __init__(
        self,
        network: ActorCritic,
        learner: RolloutLearner,
        sampling: Sampling,
        *,
        minibatches: int,
        minibatch_rng: np.random.Generator,
    ) -> None:
        super().__init__(network, learner, sampling)
        self.minibatches, self.minibatch_rng = minibatches, minibatch_rng
        self._statistics = screen_statistics([network])

    @torch.no_grad()
    def values(self, obs: Obs) -> Array:
        """What the critic thinks of each row [N]."""
        return self.network.value(to_device(obs, self.device)).cpu().numpy()

    def update(self, batch: Rollout, *, step: int) -> Update:
        size = -(-batch.reward.numel() // self.minibatches)

        def evaluated() -> Iterator[Evaluated]:
            for part in batch.minibatches(size, self.minibatch_rng):
                yield (*self.network(part.obs), part)

        update = self.learner.learn(evaluated, batch, step=step)
        for statistics in self._statistics:
            assert isinstance(batch.obs, Tensor)
            statistics.see(batch.obs)
        return update


@torch.no_grad()
def decide(network: ActorCritic, sampling: Sampling, obs: Obs, *, device: torch.device, explore: bool) -> Decision:
    """An action for each row; while exploring also what a rollout has to remember of it."""
    policy, value = network(to_device(obs, device))
    action = sampling.choose(policy, explore=explore)
    if not explore:
        return Decision(action)
    log_prob = policy.log_prob(torch.from_numpy(action).to(device))
    return Decision(action, extras={"log_prob": log_prob.cpu().numpy(), "value": value.cpu().numpy()})


def to_device(obs: Obs, device: torch.device) -> Any:
    if isinstance(obs, dict):
        return {name: torch.from_numpy(array).to(device) for name, array in obs.items()}
    return torch.from_numpy(obs).to(device)


def _explained_variance(value: Tensor, returns: Tensor) -> Tensor:
    """1 - Var(returns - values) / Var(returns): 1 for a perfect critic, 0 for one that says nothing."""
    return 1 - (returns - value).var(correction=0) / returns.var(correction=0).clamp_min(1e-12)
