"""Recurrent PPO: PPO whose policy and critic share a memory.

Schulman et al. 2017, arXiv:1707.06347, with an LSTM as in Mnih et al. 2016 or a GRU.
Loss: that of ``agents/ppo.py``, on the real steps of padded runs; each run begins with the state that was remembered
while playing and never crosses the start of a game, so that learning sees exactly what acting saw.
Differs from others: actor and critic share one memory; a time limit's successor is valued with the state after the
last step.  Defaults: PPO's, with 128 units, in ``configs/agent/recurrent_ppo.yaml``.  Eats RecurrentRollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from retrograd.agents.policy import Evaluated, PolicyLearner, Sampling, to_device
from retrograd.core.protocols import Agent
from retrograd.core.types import Array, Decision, Obs, Step, Update
from retrograd.networks.policy import RecurrentActorCritic
from retrograd.replay import RecurrentRollout, RecurrentRolloutBuffer, RolloutSequences

State = dict[str, Array]  # [N, hidden_size] by name
BEFORE, AFTER = "state before: ", "state after: "


class RecurrentPolicyAgent(Agent):
    """Its state is handed round by whoever plays; the agent itself remembers nothing between two steps."""

    def __init__(
        self,
        network: RecurrentActorCritic,
        learner: PolicyLearner,
        sampling: Sampling,
        *,
        minibatches: int,
        minibatch_rng: np.random.Generator,
        sequence_steps: int | None,
    ) -> None:
        self.network, self.learner, self.sampling = network, learner, sampling
        self.minibatches, self.minibatch_rng, self.sequence_steps = minibatches, minibatch_rng, sequence_steps
        self.device = next(network.parameters()).device
        self.parts = {"network": network, "learner": learner}

    @property
    def updates(self) -> int:
        return self.learner.updates

    def initial_state(self, num_envs: int) -> State:
        return {name: tensor.cpu().numpy() for name, tensor in self.network.core.initial_state(num_envs).items()}

    @torch.no_grad()
    def act(self, obs: Obs, state: State | None = None, *, step: int, explore: bool) -> Decision:
        policy, value, before, after = self._look(obs, state)
        action = self.sampling.choose(policy, explore=explore)
        if not explore:
            return Decision(action, after)
        log_prob = policy.log_prob(torch.from_numpy(action).to(self.device))
        extras = {"log_prob": log_prob.cpu().numpy(), "value": value.cpu().numpy()}
        extras |= {BEFORE + name: array for name, array in before.items()}
        extras |= {AFTER + name: array for name, array in after.items()}
        return Decision(action, after, extras)

    @torch.no_grad()
    def decide_greedily(self, obs: Obs, state: State | None = None) -> Decision:
        """The likeliest action of each row, whatever evaluation does."""
        policy, _, _, after = self._look(obs, state)
        return Decision(policy.mode(), after)

    @torch.no_grad()
    def values(self, obs: Obs, state: State) -> Array:
        """What the critic thinks of observations met with these states [K]."""
        return self._look(obs, state)[1].cpu().numpy()

    def _look(self, obs: Obs, state: State | None) -> tuple[Any, torch.Tensor, State, State]:
        rows = len(next(iter(obs.values()))) if isinstance(obs, dict) else len(obs)
        before = self.initial_state(rows) if state is None else state
        policy, value, after = self.network(to_device(obs, self.device), to_device(before, self.device))
        return policy, value, before, {name: tensor.cpu().numpy() for name, tensor in after.items()}

    def update(self, batch: RecurrentRollout, *, step: int) -> Update:
        def evaluated() -> Iterator[Evaluated]:
            for runs in batch.minibatches(self.minibatches, self.minibatch_rng, length_steps=self.sequence_steps):
                yield self._unroll(runs)

        return self.learner.learn(evaluated, batch.steps, step=step)

    def _unroll(self, runs: RolloutSequences) -> Evaluated:
        """Policy, value and steps [B] of the real steps; padding ends here."""
        steps = runs.steps.select(lambda tensor: tensor[runs.mask])
        policy, value = self.network.unroll(steps.obs, runs.mask, runs.state)
        return policy, value, steps

    def metrics(self, step: int) -> dict[str, float]:
        return {"learning_rate": self.learner.learning_rate(step), **self.learner.loss.coefficients(step)}


class StateRollouts:
    """Takes the states out of each step's extras and remembers them beside it."""

    def __init__(self, buffer: RecurrentRolloutBuffer) -> None:
        self._buffer = buffer

    @property
    def full(self) -> bool:
        return self._buffer.full

    def add(self, step: Step) -> None:
        before = {name.removeprefix(BEFORE): array for name, array in step.extras.items() if name.startswith(BEFORE)}
        after = {name.removeprefix(AFTER): array for name, array in step.extras.items() if name.startswith(AFTER)}
        rest = {name: array for name, array in step.extras.items() if not name.startswith((BEFORE, AFTER))}
        self._buffer.add(replace(step, extras=rest), before, after)

    def finish(self, value_of: Callable[[Obs, State], Array]) -> RecurrentRollout:
        return self._buffer.finish(value_of)

    def state_dict(self) -> dict[str, Any]:
        return self._buffer.state_dict()

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._buffer.load_state_dict(state)
