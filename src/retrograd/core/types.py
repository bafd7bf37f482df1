"""The records that travel between the rooms.

Shapes:  N environment rows · B batch · T time · A actions · Z atoms or quantiles · C stacked frames
Units:   frame = one emulator tick · step = one decision of one row · update = one optimizer step

Arrays on the environment side are numpy; batches on the learner side are torch tensors. A record
is never changed after it was made: whoever wants another value makes another record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from retrograd.core.errors import UsageError

if TYPE_CHECKING:  # torch takes two seconds to import: only learners pay for it
    from torch import Tensor

Array = npt.NDArray[Any]
Obs = Array | dict[str, Array]  # a dict where the environment has one (goal-conditioned tasks)


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """One observation array of one row."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: float = -np.inf
    high: float = np.inf


@dataclass(frozen=True, slots=True)
class DiscreteActions:
    """Actions 0 … n-1."""

    n: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ContinuousActions:
    """A box of real numbers."""

    low: Array
    high: Array


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What an agent, a network and a buffer need to know about an environment."""

    name: str
    obs: ArraySpec | dict[str, ArraySpec]
    action: DiscreteActions | ContinuousActions
    frame_stack: int | None = None  # the first axis of obs holds this many frames, newest last; None: not stacked
    frames_per_step: int = 1


@dataclass(frozen=True, slots=True)
class Episode:
    """A finished full game: never one life, always the unclipped score."""

    row: int
    score: float
    length_steps: int
    length_frames: int


@dataclass(frozen=True, slots=True)
class EnvStep:
    """What the environments answer to one action per row."""

    obs: Obs  # [N, ...] to act on next: after the reset where there was one
    next_obs: Obs  # [N, ...] the true successor, before any reset
    reward: Array  # [N] float32, clipped if the protocol says so
    terminated: Array  # [N] bool: the game, or a life the learner should value, ended
    truncated: Array  # [N] bool: a time limit; the game could have gone on
    reset: Array  # [N] bool: a new game begins at obs; false where only a life was lost
    episodes: tuple[Episode, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """One vector step as the learner remembers it."""

    obs: Obs  # [N, ...]
    action: Array  # [N] or [N, action_dim]
    reward: Array  # [N] float32
    terminated: Array  # [N] bool: no bootstrap
    truncated: Array  # [N] bool: bootstrap from next_obs
    reset: Array  # [N] bool: the next step of this row belongs to another game
    next_obs: Obs  # [N, ...] the true successor, never the reset observation
    extras: dict[str, Array] = field(default_factory=dict)  # what the agent wants remembered


@dataclass(frozen=True, slots=True)
class Transitions:
    """Replay to value learners. ``discount`` carries γ and termination: no (1 - done) anywhere."""

    obs: Tensor | dict[str, Tensor]  # [B, ...]
    action: Tensor  # [B] or [B, action_dim]
    reward: Tensor  # [B] n-step return
    discount: Tensor  # [B] γ^k, 0 where the window met a terminal
    next_obs: Tensor | dict[str, Tensor]  # [B, ...]
    weight: Tensor  # [B] importance weight, 1 when sampling is uniform
    index: Array  # [B] int64, the replay's own address of each sample


@dataclass(frozen=True, slots=True)
class Sequences:
    """Replay to recurrent and world-model learners: windows of one episode each, padded at the end."""

    obs: Tensor | dict[str, Tensor]  # [T + 1, B, ...]
    action: Tensor  # [T, B]
    reward: Tensor  # [T, B]
    discount: Tensor  # [T, B] γ, 0 at a terminal
    mask: Tensor  # [T, B] bool: real steps; burn-in steps are real too
    state: dict[str, Tensor]  # [B, ...] stored recurrent state at the window's first step
    burn_in_steps: int
    weight: Tensor  # [B]
    index: Array  # [B] int64


@dataclass(frozen=True, slots=True)
class Rollout:
    """Rollout buffer to policy-gradient learners; every field has the same leading dimensions, [T, N] or [B]."""

    obs: Tensor | dict[str, Tensor]
    action: Tensor
    reward: Tensor
    log_prob: Tensor  # of the policy that played
    value: Tensor  # as that policy's critic saw it
    advantage: Tensor
    returns: Tensor  # advantage + value
    extras: dict[str, Tensor]

    def select(self, pick: Callable[[Tensor], Tensor]) -> Rollout:
        """The rollout with ``pick`` applied to every tensor."""
        obs = {k: pick(t) for k, t in self.obs.items()} if isinstance(self.obs, dict) else pick(self.obs)
        names = ("action", "reward", "log_prob", "value", "advantage", "returns")
        fields: dict[str, Any] = {name: pick(getattr(self, name)) for name in names}
        return replace(self, obs=obs, extras={k: pick(t) for k, t in self.extras.items()}, **fields)

    def minibatches(self, batch_size: int, rng: np.random.Generator) -> Iterator[Rollout]:
        """All steps once, shuffled, in batches [B]; the last one is smaller where they do not divide evenly.

        One batch of everything is not shuffled: the order would change nothing but the last digits.
        """
        if batch_size < 1:
            raise UsageError(f"batch_size is {batch_size}: must be at least 1")
        import torch

        flat = self.select(lambda tensor: tensor.flatten(0, 1))
        if batch_size >= len(flat.reward):
            yield flat
            return
        order = torch.from_numpy(rng.permutation(len(flat.reward))).to(flat.reward.device)
        for begin in range(0, len(order), batch_size):
            chosen = order[begin : begin + batch_size]
            yield flat.select(lambda tensor, chosen=chosen: tensor.index_select(0, chosen))  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Decision:
    """What an agent wants done, and what it wants remembered."""

    action: Array  # [N] or [N, action_dim]
    state: Any = None
    extras: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Update:
    """The outcome of one learning step. Metrics stay tensors until somebody logs them."""

    metrics: dict[str, Tensor | float]
    priority: Tensor | None = None  # [B] for the replay; None when the batch had none


@dataclass(frozen=True, slots=True)
class EvalResult:
    """Scores of full, unclipped games."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]
