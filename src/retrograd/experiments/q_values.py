"""What an agent expected while it played: values of every action along a game, as distributions where it has them.

Value agents give the expected return of each action, and with C51, quantiles or IQN its whole distribution. Policy
agents give the critic's value and the probability of each action. What the game then really paid stands beside it.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from retrograd.agents.policy import to_device
from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent
from retrograd.core.types import Array, DiscreteActions, EnvSpec, Obs
from retrograd.networks.distributions import CategoricalActions
from retrograd.networks.encoders import Observation
from retrograd.networks.policy import ActorCritic, RecurrentActorCritic
from retrograd.networks.q_network import QNetwork
from retrograd.training.video import Viewer

Network = QNetwork | ActorCritic | RecurrentActorCritic


@dataclass(frozen=True, slots=True)
class Opinion:
    """What an agent thinks of one state."""

    value: float  # the best action's expected return, or the critic's word
    q: Array | None = None  # [A]
    probability: Array | None = None  # [A]
    places: Array | None = None  # [A, Z] returns …
    mass: Array | None = None  # [A, Z] … and their probabilities


@dataclass(frozen=True, slots=True)
class Sight:
    """What there is to see at one step, before the agent acts."""

    step: int
    obs: Obs  # [1, ...]
    state: Any  # a recurrent agent's memory before it
    pictures: Sequence[Array]  # [H, W, 3] uint8 each, since the step before; none where nothing is drawn
    opinion: Opinion


@dataclass(frozen=True, slots=True)
class Moment:
    """One step that is worth a closer look, with the picture a human saw there."""

    label: str
    step: int
    picture: Array | None  # [H, W, 3] uint8; None where the environment draws nothing


@dataclass(frozen=True, slots=True)
class Counting:
    """How the learner counts what a game pays."""

    gamma: float
    clip: bool = False  # rewards to their sign
    scaled: bool = False  # rewards divided by statistics of its own, so that nothing here can be compared with values

    @classmethod
    def of(cls, config: Mapping[str, Any], spec: EnvSpec) -> Counting:
        clip = config["preset"]["reward_clip"] and spec.frame_stack is not None
        return cls(config["agent"]["gamma"], clip, config["training"]["normalize_rewards"])

    def rewards(self, paid: Sequence[float]) -> Array:
        return np.sign(paid) if self.clip else np.asarray(paid)

    def returns(self, reward: Array, terminated: Array) -> Array:
        """[T] Σ_k γ^k r_{t+k} up to the next end that the learner knows; NaN where none came.

        Such an end is a lost life too, where training says so; a time limit and a game left early are none.
        """
        returns, total = np.empty(len(reward)), np.nan
        for time in range(len(reward) - 1, -1, -1):
            total = reward[time] + (0.0 if terminated[time] else self.gamma * total)
            returns[time] = total
        return np.full(len(reward), np.nan) if self.scaled else returns


@dataclass(frozen=True, slots=True)
class Trace:
    """One game: what was done, what it paid and what the agent thought before each step."""

    action_names: tuple[str, ...]  # empty where actions are real numbers
    action: Array  # [T] or [T, action_dim]
    reward: Array  # [T] as the learner counts it
    return_to_come: Array  # [T] discounted; NaN where it is not known (Counting.returns)
    value: Array  # [T]
    q: Array | None  # [T, A]
    probability: Array | None  # [T, A]
    places: Array | None  # [T, A, Z]
    mass: Array | None  # [T, A, Z]
    moments: tuple[Moment, ...]
    score: float | None  # unclipped; None where the game was left before its end

    @property
    def expected(self) -> Array:
        """[T] what the agent expected of the action it took."""
        if self.q is None:
            return self.value
        taken: Array = np.take_along_axis(self.q, self.action[:, None], axis=1)[:, 0]
        return taken

    def summary(self) -> dict[str, Any]:
        """How the expectation compares with what came; the error is positive where the agent expected too much."""
        known = np.isfinite(self.return_to_come)
        expected, came = self.expected[known], self.return_to_come[known]
        varied = bool(known.any()) and expected.std() > 0 and came.std() > 0
        return {
            "score": self.score,
            "length_steps": len(self.value),
            "mean_value": float(self.value.mean()),
            "mean_return_to_come": float(came.mean()) if known.any() else None,
            "mean_error": float((expected - came).mean()) if known.any() else None,
            "correlation": float(np.corrcoef(expected, came)[0, 1]) if varied else None,
            "moments": {moment.label: moment.step for moment in self.moments},
        }


def network_of(agent: Agent) -> Network:
    """The network that values states; UsageError for agents that have none."""
    network = agent.parts.get("online", agent.parts.get("network"))
    if not isinstance(network, Network):
        raise UsageError("this agent has no values to show: it has neither a Q network nor a critic")
    return network


@torch.no_grad()
def opinion_of(agent: Agent, obs: Obs, state: Any = None) -> Opinion:
    """The opinion about the single row of ``obs`` [1, ...]; ``state`` is a recurrent agent's memory before it."""
    network = network_of(agent)
    rows = to_device(obs, next(network.parameters()).device)
    if isinstance(network, QNetwork):
        q = _first(network.get_q_values(rows))
        distributions = network.get_distributions(rows)
        places, mass = (None, None) if distributions is None else map(_first, distributions)
        return Opinion(float(q.max()), q=q, places=places, mass=mass)
    policy, value = _actor_and_critic(network, rows, _memory(agent, state))
    probability = _first(policy.log_probs.exp()) if isinstance(policy, CategoricalActions) else None
    return Opinion(float(value[0]), probability=probability)


def outputs_of(agent: Agent, state: Any = None) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
    """What a saliency map explains, of images [B, C, H, W]: ``choice`` [B, A], of a critic also ``value`` [B, 1].

    The choice are action values, or logits around their mean, or the means of real-valued actions. The memory of a
    recurrent agent is that of one row and is held. The network is in evaluation mode meanwhile: in learning it scales
    gradients (dueling) and improves estimates (spectral norm).
    """
    network, memory = network_of(agent), _memory(agent, state)

    def outputs(images: torch.Tensor) -> dict[str, torch.Tensor]:
        with _evaluating(network):
            return look(images)

    def look(images: torch.Tensor) -> dict[str, torch.Tensor]:
        if isinstance(network, QNetwork):
            return {"choice": network.get_q_values(images)}
        rows = {name: tensor.expand(len(images), -1) for name, tensor in memory.items()}
        policy, value = _actor_and_critic(network, images, rows)
        if isinstance(policy, CategoricalActions):
            choice = policy.log_probs - policy.log_probs.mean(-1, keepdim=True)
        else:
            choice = policy.mean
        return {"choice": choice, "value": value.unsqueeze(-1)}

    return outputs


@contextmanager
def _evaluating(network: Network) -> Iterator[None]:
    learning = network.training
    network.eval()
    if isinstance(network, RecurrentActorCritic):
        network.core.train()  # no difference but one: cuDNN gives slopes through a memory in this mode only
    try:
        yield
    finally:
        network.train(learning)


def _memory(agent: Agent, state: Any) -> dict[str, torch.Tensor]:
    network = network_of(agent)
    if not isinstance(network, RecurrentActorCritic):
        return {}
    memory: dict[str, torch.Tensor] = to_device(
        agent.initial_state(1) if state is None else state, next(network.parameters()).device
    )
    return memory


def _actor_and_critic(
    network: ActorCritic | RecurrentActorCritic, obs: Observation, memory: dict[str, torch.Tensor]
) -> tuple[Any, torch.Tensor]:
    if isinstance(network, RecurrentActorCritic):
        policy, value, _ = network(obs, {name: tensor.contiguous() for name, tensor in memory.items()})
        return policy, value
    policy, value = network(obs)
    return policy, value


def trace_game(
    agent: Agent,
    viewer: Viewer,
    *,
    step: int,
    counting: Counting,
    at_steps: Sequence[int] = (),
    max_steps: int = 10_000,
    witness: Callable[[Sight], None] = lambda _: None,
) -> Trace:
    """Play one game as evaluation does and write down every opinion; ``at_steps`` names the moments to keep.

    ``witness`` is shown every step before the agent acts.
    """
    network_of(agent)
    if max_steps < 1:
        raise UsageError(f"max_steps is {max_steps}: a trace needs at least 1 step")
    state = agent.initial_state(1)
    watch = _Moments(at_steps)
    opinions: list[Opinion] = []
    actions, rewards, terminated = [], [], []
    score: float | None = None
    ended = False
    frames = viewer.pop_frames()
    while not ended and len(opinions) < max_steps:
        obs = viewer.observe()
        opinion = opinion_of(agent, obs, state)
        watch.see(len(opinions), opinion, frames[-1] if len(frames) else None)
        witness(Sight(len(opinions), obs, state, frames, opinion))
        decision = agent.act(obs, state, step=step, explore=False)
        state = decision.state
        viewer.send(decision.action)
        answer = viewer.recv()
        frames = viewer.pop_frames()
        opinions.append(opinion)
        actions.append(np.array(decision.action[0]))
        rewards.append(float(answer.reward[0]))
        terminated.append(bool(answer.terminated[0]))
        if answer.episodes:
            ended, score = True, answer.episodes[0].score
    reward = counting.rewards(rewards)
    return Trace(
        action_names=_action_names(viewer),
        action=np.stack(actions),
        reward=reward,
        return_to_come=counting.returns(reward, np.asarray(terminated)),
        value=np.array([opinion.value for opinion in opinions]),
        q=_stack([opinion.q for opinion in opinions]),
        probability=_stack([opinion.probability for opinion in opinions]),
        places=_stack([opinion.places for opinion in opinions]),
        mass=_stack([opinion.mass for opinion in opinions]),
        moments=watch.moments(),
        score=score,
    )


def write_trace(trace: Trace, folder: Path, stem: str) -> list[Path]:
    """The game as a table for reading (CSV) and as arrays for computing (NPZ)."""
    folder.mkdir(parents=True, exist_ok=True)
    table, arrays = folder / f"{stem}.csv", folder / f"{stem}.npz"
    prefix, columns = ("q", trace.q) if trace.q is not None else ("p", trace.probability)
    names = [f"{prefix}_{name}" for name in trace.action_names] if columns is not None else []
    with open(table, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["step", "action", "reward", "value", "return_to_come", *names])
        for time in range(len(trace.value)):
            action = trace.action[time]
            word = trace.action_names[int(action)] if trace.action_names else " ".join(f"{x:.5g}" for x in action)
            numbers = [trace.reward[time], trace.value[time], trace.return_to_come[time]]
            numbers += [] if columns is None else list(columns[time])
            writer.writerow([time, word, *(f"{number:.6g}" for number in numbers)])
    fields = ("action", "reward", "return_to_come", "value", "q", "probability", "places", "mass")
    held = {name: getattr(trace, name) for name in fields if getattr(trace, name) is not None}
    np.savez_compressed(arrays, **held, action_names=np.array(trace.action_names, np.str_))
    return [table, arrays]


class _Moments:
    """Keeps the steps asked for, or else those of extreme opinions, with their pictures."""

    def __init__(self, at_steps: Sequence[int]) -> None:
        self._wanted = set(at_steps)
        self._best: dict[str, tuple[float, Moment]] = {}

    def see(self, step: int, opinion: Opinion, picture: Array | None) -> None:
        if self._wanted:
            if step in self._wanted:
                self._best[f"step {step}"] = (0.0, Moment(f"step {step}", step, picture))
            return
        ranks = {"highest value": opinion.value, "lowest value": -opinion.value}
        preference = opinion.q if opinion.q is not None else opinion.probability
        if preference is not None and len(preference) > 1:
            second, first = np.partition(preference, -2)[-2:]
            ranks["clearest choice"] = float(first - second)
        for label, rank in ranks.items():
            if label not in self._best or rank > self._best[label][0]:
                self._best[label] = (rank, Moment(label, step, picture))

    def moments(self) -> tuple[Moment, ...]:
        missing = self._wanted - {moment.step for _, moment in self._best.values()}
        if missing:
            raise UsageError(f"the game ended before step {min(missing)}")
        found: dict[int, Moment] = {}
        for _, moment in self._best.values():
            other = found.get(moment.step)
            label = f"{other.label}, {moment.label}" if other is not None else moment.label
            found[moment.step] = Moment(label, moment.step, moment.picture)
        return tuple(found[step] for step in sorted(found))


def _first(tensor: torch.Tensor) -> Array:
    return tensor[0].float().cpu().numpy()


def _stack(arrays: Sequence[Array | None]) -> Array | None:
    return None if arrays[0] is None else np.stack([array for array in arrays if array is not None])


def _action_names(viewer: Viewer) -> tuple[str, ...]:
    actions = viewer.spec.action
    if not isinstance(actions, DiscreteActions):
        return ()
    return actions.names or tuple(f"action {number}" for number in range(actions.n))
