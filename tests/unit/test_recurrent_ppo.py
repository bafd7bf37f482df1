"""Recurrent PPO: learning sees exactly what acting saw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from retrograd.agents.policy import PolicyLearner, Sampling
from retrograd.agents.ppo import PPOLoss
from retrograd.config import ConfigManager
from retrograd.contrib.recurrent_ppo import RecurrentPolicyAgent, StateRollouts
from retrograd.core.errors import UsageError
from retrograd.core.schedules import Constant
from retrograd.core.types import ArraySpec, DiscreteActions, Step
from retrograd.networks.policy import make_recurrent_actor_critic
from retrograd.replay import RecurrentRollout, RecurrentRolloutBuffer
from retrograd.training.state import reset_rows

T, N = 24, 3


def make_agent(cell: str, *, minibatches: int = 2, sequence_steps: int | None = None) -> RecurrentPolicyAgent:
    torch.manual_seed(0)
    spec = ArraySpec((4,), np.dtype(np.float32))
    network = make_recurrent_actor_critic(spec, DiscreteActions(3), cell=cell, hidden_size=8, channels_last=True)
    with torch.no_grad():  # away from the nearly uniform first policy, where every mistake looks alike
        network.policy_head.linear.weight.normal_(0, 1.0)
    loss = PPOLoss(Constant(0.2), Constant(0.01), value_coef=0.5, value_clip=True, normalize_advantage=True)
    learner = PolicyLearner(
        network,
        loss,
        torch.optim.Adam(network.parameters()),
        lr=Constant(1e-3),
        epochs=1,
        max_grad_norm=0.5,
        target_kl=None,
    )
    sampling = Sampling(np.random.default_rng(1), np.random.default_rng(2), sample_in_evaluation=False)
    return RecurrentPolicyAgent(
        network,
        learner,
        sampling,
        minibatches=minibatches,
        minibatch_rng=np.random.default_rng(3),
        sequence_steps=sequence_steps,
    )


def play(agent: RecurrentPolicyAgent, *, forget_resets: bool = False) -> tuple[list[Step], RecurrentRollout]:
    """Two rollouts with games, lives and time limits that end at random; the second one is returned."""
    rng = np.random.default_rng(5)
    rollouts = StateRollouts(RecurrentRolloutBuffer(T, N))
    fresh = agent.initial_state(N)
    state, obs = fresh, rng.normal(size=(N, 4)).astype(np.float32)
    for _ in range(2):
        steps = []
        while not rollouts.full:
            decision = agent.act(obs, state, step=0, explore=True)
            kind = rng.integers(8, size=N)
            reset = (kind == 0) | (kind == 2)
            following = rng.normal(size=(N, 4)).astype(np.float32)
            step = Step(
                obs, decision.action, np.ones(N, np.float32), kind < 2, kind == 2, reset, following, decision.extras
            )
            steps.append(step)
            rollouts.add(step)
            obs = np.where(reset[:, None], rng.normal(size=(N, 4)).astype(np.float32), following)
            state = decision.state if forget_resets else reset_rows(decision.state, fresh, reset)
        rollout = rollouts.finish(agent.values)
    return steps, rollout


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("sequence_steps", [None, 5])
def test_a_replayed_rollout_gives_the_same_probabilities(cell: str, sequence_steps: int | None) -> None:
    """REQ ALGO-4: to 1e-5, whatever the cuts; every step comes exactly once."""
    agent = make_agent(cell, sequence_steps=sequence_steps)
    _, rollout = play(agent)
    seen = 0
    with torch.no_grad():
        for runs in rollout.minibatches(3, np.random.default_rng(0), length_steps=sequence_steps):
            policy, value, steps = agent._unroll(runs)
            assert torch.allclose(policy.log_prob(steps.action), steps.log_prob, atol=1e-5)
            assert torch.allclose(value, steps.value, atol=1e-5)
            seen += len(steps.reward)
    assert seen == T * N


def test_a_state_kept_over_the_start_of_a_game_is_noticed() -> None:
    """The mutant whose acting forgets to reset: games then begin with a state that is not zero."""
    agent = make_agent("lstm")
    _, rollout = play(agent, forget_resets=True)
    state = torch.cat([tensor[rollout.episode_start] for tensor in rollout.state.values()])
    _, right = play(agent)
    assert state.abs().max() > 0.1
    assert not torch.cat([tensor[right.episode_start] for tensor in right.state.values()]).any()


def test_the_first_minibatch_moves_nothing_by_itself() -> None:
    agent = make_agent("lstm", minibatches=1)
    _, rollout = play(agent)
    metrics = agent.update(rollout, step=2 * T * N).metrics
    assert float(metrics["approx_kl"]) == pytest.approx(0.0, abs=1e-6)
    assert metrics["clip_fraction"] == 0.0
    assert agent.updates == 1


def test_minibatches_hold_about_as_many_steps_each() -> None:
    agent = make_agent("gru")
    _, rollout = play(agent)
    sizes = [int(runs.mask.sum()) for runs in rollout.minibatches(4, np.random.default_rng(0), length_steps=4)]
    assert len(sizes) == 4
    assert sum(sizes) == T * N
    assert max(sizes) - min(sizes) <= 8


def test_successors_at_time_limits_are_valued_with_the_state_after_the_step() -> None:
    agent = make_agent("lstm")
    steps, rollout = play(agent)
    t, row = next((t, n) for t in range(T - 1) for n in range(N) if steps[t].truncated[n])
    step = steps[t]
    after = {name: step.extras[f"state after: {name}"][row : row + 1] for name in ("h", "c")}
    value = float(agent.values(np.asarray(step.next_obs)[row : row + 1], after)[0])
    assert float(rollout.steps.returns[t, row]) == pytest.approx(1 + 0.99 * value, abs=1e-4)
    forgotten = float(agent.values(np.asarray(step.next_obs)[row : row + 1], agent.initial_state(1))[0])
    assert abs(forgotten - value) > 1e-3


def test_memory_is_kept_between_actions_of_one_game() -> None:
    agent = make_agent("gru")
    obs = np.ones(4, np.float32)
    agent.select_action(obs)
    first: Any = agent._playing
    agent.select_action(obs)
    assert not np.array_equal(first["h"], agent._playing["h"])
    agent.reset()
    agent.select_action(obs)
    assert np.array_equal(first["h"], agent._playing["h"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("agent.hidden_size=0", "agent.hidden_size=0 must be a whole number of at least 1"),
        ("agent.sequence_steps=0", "agent.sequence_steps=0 must be a whole number of at least 1"),
        ("agent.cell=lstn", "Did you mean 'lstm'"),
    ],
)
def test_bad_settings_fail_before_anything_starts(setting: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ConfigManager(None).compose(["agent=recurrent_ppo", setting])


def test_sequences_longer_than_the_rollout_are_refused() -> None:
    from retrograd.build import Builder

    config = ConfigManager(None).compose(["agent=recurrent_ppo", "env=cartpole", "agent.sequence_steps=200"])
    builder = Builder(config)
    envs = builder.evaluation_environments(0)
    with pytest.raises(UsageError, match=r"sequence_steps=200 must not exceed agent.rollout_steps=128"):
        builder.agent(envs.spec)
    envs.close()
