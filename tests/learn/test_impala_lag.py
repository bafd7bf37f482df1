"""IMPALA solves Catch with players that are 20 updates behind; without the correction it does not.

The lag is made here, in one process and by the same records as between processes, so that a run repeats itself.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import multiprocessing

from retrograd.agents import impala
from retrograd.agents.a2c import A2CLoss
from retrograd.agents.impala import ImpalaAgent, SummedLoss
from retrograd.agents.policy import PolicyLearner, Sampling, decide
from retrograd.core.protocols import VecEnv
from retrograd.core.returns import vtrace
from retrograd.core.schedules import Constant
from retrograd.core.types import Step
from retrograd.distributed.slots import Filled, SlotRollouts, Slots, gather
from retrograd.envs.toys.catch import Catch
from retrograd.envs.vector import GymVec
from retrograd.networks.policy import ActorCritic, make_actor_critic

ROWS, STEPS, LAG_UPDATES, UPDATES = 16, 9, 20, 220
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_agent(envs: VecEnv, seed: int) -> ImpalaAgent:
    torch.manual_seed(seed)
    network = make_actor_critic(envs.spec.obs, envs.spec.action, shared=True, channels_last=False)
    learner = PolicyLearner(
        network,
        SummedLoss(A2CLoss(Constant(0.01), 0.5, normalize_advantage=False)),
        torch.optim.Adam(network.parameters(), lr=0.003, eps=1e-5),
        lr=Constant(0.003),
        epochs=1,
        max_grad_norm=40.0,
        target_kl=None,
    )
    sampling = Sampling(np.random.default_rng(seed), np.random.default_rng(1), sample_in_evaluation=True)
    return ImpalaAgent(network, learner, sampling, gamma=0.99, rho_clip=1.0, c_clip=1.0)


def play(network: ActorCritic, sampling: Sampling, envs: VecEnv) -> tuple[Step, list[float]]:
    obs = envs.observe()
    decision = decide(network, sampling, obs, device=CPU, explore=True)
    envs.send(decision.action)
    out = envs.recv()
    step = Step(
        obs, decision.action, out.reward, out.terminated, out.truncated, out.reset, out.next_obs, decision.extras
    )
    return step, [episode.score for episode in out.episodes]


def score(seed: int) -> float:
    """The mean of 96 games by the last weights, after 220 updates from games of weights 20 updates old."""
    envs = GymVec([Catch] * ROWS, seed=seed)
    agent = make_agent(envs, seed)
    player = copy.deepcopy(agent.network)
    past: deque[list[torch.Tensor]] = deque(maxlen=LAG_UPDATES + 1)
    slots = Slots(envs.spec, STEPS, ROWS, count=1, context=multiprocessing.get_context("spawn"))
    rollouts = SlotRollouts(slots)
    for update in range(UPDATES):
        past.append([param.detach().clone() for param in agent.network.parameters()])
        with torch.no_grad():
            torch._foreach_copy_(list(player.parameters()), past[0])
        while not rollouts.full:
            rollouts.add(play(player, agent.sampling, envs)[0])
        slot, successors = rollouts.finish(lambda obs: obs)
        agent.update(gather([Filled(0, slot, 0, successors)], [slots]), step=(update + 1) * STEPS * ROWS)
    # every game takes nine steps, so that all rows begin one now
    return float(np.mean([game for _ in range(6 * 9) for game in play(agent.network, agent.sampling, envs)[1]]))


def test_catch_is_solved_from_games_that_lag_20_updates_behind() -> None:
    assert score(1) >= 0.9


def test_without_the_correction_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """ρ = c = 1, as if the players had the learner's weights: the policy collapses."""
    monkeypatch.setattr(impala, "vtrace", lambda log_ratio, *rest, **clips: vtrace(0 * log_ratio, *rest, **clips))
    assert score(1) < 0.5
