"""PPO and A2C on made-up rollouts: against each other, against Stable-Baselines3, and by hand."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from retrograd.agents.a2c import A2CLoss
from retrograd.agents.policy import PolicyAgent, PolicyLearner, PolicyLoss, Sampling
from retrograd.agents.ppo import PPOLoss, normalize
from retrograd.build import Builder, planned_spec
from retrograd.config import ConfigManager
from retrograd.core.errors import FailureGate, UsageError
from retrograd.core.schedules import Constant, Horizon, Linear, Schedule, WholeRun
from retrograd.core.types import ArraySpec, ContinuousActions, DiscreteActions, Rollout
from retrograd.networks.encoders import MLP
from retrograd.networks.optimizers import TensorFlowRMSprop
from retrograd.networks.policy import ActorCritic, PolicyNetwork, ValueNetwork, _policy_head, make_actor_critic

T, N = 8, 4
VECTOR = ArraySpec((5,), np.dtype(np.float32))
GOLDEN = Path(__file__).parents[1] / "golden" / "ppo_sb3.npz"
PPO = PPOLoss(Constant(0.2), Constant(0.01), value_coef=0.5, value_clip=True, normalize_advantage=True)
UNCLIPPED = PPOLoss(Constant(1e9), Constant(0.01), value_coef=0.5, value_clip=False, normalize_advantage=False)
A2C = A2CLoss(Constant(0.01), value_coef=0.5, normalize_advantage=False)


def make_agent(
    loss: PolicyLoss,
    *,
    epochs: int = 1,
    minibatches: int = 1,
    target_kl: float | None = None,
    adaptive_kl: Schedule | None = None,
    lr: Any = None,
) -> PolicyAgent:
    torch.manual_seed(0)
    network = make_actor_critic(VECTOR, DiscreteActions(3), shared=True, channels_last=True)
    learner = PolicyLearner(
        network,
        loss,
        TensorFlowRMSprop(network.parameters(), 7e-4, 0.99, 1e-5),
        lr=lr or Constant(7e-3),
        epochs=epochs,
        max_grad_norm=0.5,
        target_kl=target_kl,
        adaptive_kl=adaptive_kl,
    )
    sampling = Sampling(np.random.default_rng(1), np.random.default_rng(2), sample_in_evaluation=False)
    return PolicyAgent(network, learner, sampling, minibatches=minibatches, minibatch_rng=np.random.default_rng(3))


@torch.no_grad()
def rollout_of(agent: PolicyAgent, seed: int) -> Rollout:
    """Made-up steps [T, N] with the agent's own probabilities and values of them."""
    generator = torch.Generator().manual_seed(seed)
    obs = torch.randn(T, N, 5, generator=generator)
    action = torch.randint(3, (T, N), generator=generator)
    policy, value = agent.network(obs.flatten(0, 1))
    log_prob, value = policy.log_prob(action.flatten()).view(T, N), value.view(T, N)
    advantage = torch.randn(T, N, generator=generator)
    return Rollout(obs, action, torch.zeros(T, N), log_prob, value, advantage, advantage + value, {})


def weights(agent: PolicyAgent) -> torch.Tensor:
    return torch.cat([param.detach().flatten() for param in agent.network.parameters()])


def test_a2c_is_ppo_with_one_epoch_one_minibatch_and_no_clipping() -> None:
    """REQ ALGO-3: bit for bit after 20 updates."""
    a2c, ppo = make_agent(A2C), make_agent(UNCLIPPED)
    begin = weights(a2c)
    for update in range(20):
        for agent in (a2c, ppo):
            agent.update(rollout_of(agent, update), step=(update + 1) * T * N)
    assert torch.equal(weights(a2c), weights(ppo))
    assert not torch.allclose(weights(a2c), begin, atol=1e-3)
    assert a2c.updates == ppo.updates == 20


def test_the_first_ratio_is_exactly_one() -> None:
    agent = make_agent(PPO)
    metrics = agent.update(rollout_of(agent, 0), step=T * N).metrics
    assert metrics["approx_kl"] == 0.0
    assert metrics["clip_fraction"] == 0.0
    # with a ratio of 1 the loss is minus the mean of normalized advantages, which is 0
    assert float(metrics["policy_loss"]) == pytest.approx(0.0, abs=1e-6)


def golden_case(algorithm: str, kind: str) -> tuple[ActorCritic, Rollout, dict[str, Any]]:
    prefix = f"{algorithm}.{kind}."
    with np.load(GOLDEN) as file:
        case = {name.removeprefix(prefix): file[name] for name in file.files if name.startswith(prefix)}
    actions = DiscreteActions(3) if kind == "discrete" else ContinuousActions(-np.ones(2), np.ones(2))
    spec = ArraySpec((case["observations"].shape[-1],), np.dtype(np.float32))
    network = ActorCritic(
        PolicyNetwork(MLP(spec, (16, 16)), _policy_head(16, actions)), ValueNetwork(MLP(spec, (16, 16)), 16)
    )
    own = dict(network.named_parameters())
    with torch.no_grad():
        for name, param in own.items():
            param.copy_(torch.from_numpy(case["weight." + THEIRS[name]]))
    tensors = {name: torch.from_numpy(case[name]).flatten(0, 1) for name in ("observations", "log_probs", "values")}
    action = torch.from_numpy(case["actions"]).flatten(0, 1)
    advantage, returns = (torch.from_numpy(case[name]).flatten() for name in ("advantages", "returns"))
    rollout = Rollout(
        obs=tensors["observations"],
        action=action.squeeze(-1).long() if kind == "discrete" else action.float(),
        reward=torch.zeros_like(advantage),
        log_prob=tensors["log_probs"],
        value=tensors["values"],
        advantage=advantage,
        returns=returns,
        extras={},
    )
    return network, rollout, case


THEIRS = {
    **{f"actor.encoder.layers.{layer}.{kind}": f"mlp_extractor.policy_net.{layer}.{kind}"
       for layer in (0, 2) for kind in ("weight", "bias")},
    **{f"critic.encoder.layers.{layer}.{kind}": f"mlp_extractor.value_net.{layer}.{kind}"
       for layer in (0, 2) for kind in ("weight", "bias")},
    **{f"actor.head.linear.{kind}": f"action_net.{kind}" for kind in ("weight", "bias")},
    **{f"critic.head.{kind}": f"value_net.{kind}" for kind in ("weight", "bias")},
    "actor.head.log_std": "log_std",
}  # fmt: skip


@pytest.mark.parametrize("kind", ["discrete", "continuous"])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_losses_and_gradients_match_sb3(algorithm: str, kind: str) -> None:
    """Their value loss has no ½, so their vf_coef of 0.5 is our value_coef of 1."""
    network, rollout, case = golden_case(algorithm, kind)
    loss = (
        PPOLoss(Constant(0.2), Constant(0.01), value_coef=1.0, value_clip=False, normalize_advantage=True)
        if algorithm == "ppo"
        else A2CLoss(Constant(0.01), value_coef=1.0, normalize_advantage=False)
    )
    out = loss(*network(rollout.obs), rollout, step=0)
    out.loss.backward()
    assert float(out.metrics["policy_loss"]) == pytest.approx(float(case["policy_loss"]), abs=1e-5)
    assert 2 * float(out.metrics["value_loss"]) == pytest.approx(float(case["value_loss"]), abs=1e-5)
    assert -float(out.metrics["entropy"]) == pytest.approx(float(case["entropy_loss"]), abs=1e-5)
    if algorithm == "ppo":
        assert float(out.approx_kl) == pytest.approx(float(case["approx_kl"]), abs=1e-5)
        assert 0 < float(out.metrics["clip_fraction"]) == pytest.approx(float(case["clip_fraction"]), abs=1e-5)
    for name, param in network.named_parameters():
        assert param.grad is not None
        assert np.allclose(param.grad.numpy(), case["gradient." + THEIRS[name]], atol=1e-5), name


def reversed_ratio(loss: PPOLoss, policy: Any, value: Any, batch: Rollout) -> torch.Tensor:
    mirrored = replace(batch, log_prob=2 * policy.log_prob(batch.action).detach() - batch.log_prob)
    return loss(policy, value, mirrored, step=0).loss


def test_mutants_of_the_loss_do_not_match_sb3() -> None:
    network, rollout, case = golden_case("ppo", "discrete")
    loss = PPOLoss(Constant(0.2), Constant(0.01), value_coef=1.0, value_clip=False, normalize_advantage=True)
    name = "actor.head.linear.weight"
    wanted = torch.from_numpy(case["gradient." + THEIRS[name]])
    mutants = (
        loss(*network(rollout.obs), replace(rollout, advantage=-rollout.advantage), step=0).loss,
        reversed_ratio(loss, *network(rollout.obs), rollout),
        replace(loss, normalize_advantage=False)(*network(rollout.obs), rollout, step=0).loss,
        replace(loss, entropy_coef=Constant(-0.01))(*network(rollout.obs), rollout, step=0).loss,
    )
    for mutant in mutants:
        (gradient,) = torch.autograd.grad(mutant, [dict(network.named_parameters())[name]])
        assert (gradient - wanted).abs().max() > 1e-4


def test_clipping_by_hand() -> None:
    """Gains beyond the range give no gradient, losses do; the value's larger error counts."""
    log_prob = torch.tensor([0.5, 0.5, -0.5, -0.5], requires_grad=True)
    value = torch.tensor([1.0, 1.0, 1.0, 1.0], requires_grad=True)

    class Fixed:
        def log_prob(self, action: torch.Tensor) -> torch.Tensor:
            return log_prob

        def entropy(self) -> torch.Tensor:
            return torch.zeros(4)

    zeros = torch.zeros(4)
    advantage = torch.tensor([1.0, -1.0, 1.0, -1.0])
    batch = Rollout(zeros, zeros, zeros, zeros, zeros, advantage, torch.full((4,), 2.0), {})
    loss = PPOLoss(Constant(0.2), Constant(0.0), value_coef=1.0, value_clip=True, normalize_advantage=False)
    out = loss(Fixed(), value, batch, step=0)  # type: ignore[arg-type]
    out.loss.backward()
    up, down = np.exp(0.5), np.exp(-0.5)
    assert log_prob.grad is not None
    assert log_prob.grad.tolist() == pytest.approx([0.0, up / 4, -down / 4, 0.0])
    assert float(out.metrics["policy_loss"]) == pytest.approx(-(1.2 - up + down - 0.8) / 4)
    assert float(out.metrics["value_loss"]) == pytest.approx(0.5 * 1.8**2)
    assert float(out.metrics["clip_fraction"]) == 1.0


def test_normalize() -> None:
    advantage = torch.tensor([1.0, 2.0, 6.0])
    assert normalize(advantage).mean() == pytest.approx(0.0, abs=1e-6)
    assert normalize(advantage).std() == pytest.approx(1.0, abs=1e-6)
    assert torch.equal(normalize(advantage[:1]), advantage[:1])


def test_epochs_and_minibatches_are_counted() -> None:
    agent = make_agent(PPO, epochs=3, minibatches=5)
    agent.update(rollout_of(agent, 0), step=T * N)
    assert agent.updates == 15  # 32 steps in batches of 7, 7, 7, 7 and 4, three times


def test_the_policy_is_left_alone_beyond_the_target_kl() -> None:
    free, held = make_agent(PPO, epochs=8), make_agent(PPO, epochs=8, target_kl=1e-7)
    for agent in (free, held):
        agent.update(rollout_of(agent, 0), step=T * N)
    assert free.updates == 8
    assert held.updates == 1  # the first step finds a divergence of 0


@pytest.mark.parametrize(("wanted", "scale"), [(1e-9, 1 / 1.5), (1e9, 1.5)])
def test_the_rate_follows_how_far_the_policy_moves(wanted: float, scale: float) -> None:
    agent = make_agent(PPO, epochs=4, adaptive_kl=Constant(wanted))
    agent.update(rollout_of(agent, 0), step=T * N)
    assert agent.metrics(0)["learning_rate"] == pytest.approx(7e-3 * scale)
    assert agent.learner.optimizer.param_groups[0]["lr"] == pytest.approx(7e-3)  # of the rollout that is over
    again = make_agent(PPO, epochs=4, adaptive_kl=Constant(wanted))
    again.learner.load_state_dict(agent.learner.state_dict())
    assert again.metrics(0) == agent.metrics(0)
    for number in range(20):
        agent.update(rollout_of(agent, number), step=T * N)
    assert 7e-3 / 30 <= agent.metrics(0)["learning_rate"] <= 7e-3 * 30


def test_a_rate_that_moves_the_policy_as_far_as_wanted_stays() -> None:
    agent = make_agent(PPO, epochs=4)
    moved = float(agent.update(rollout_of(agent, 0), step=T * N).metrics["approx_kl"])
    last = moved * 4  # about: the divergence grows from 0 over the epochs
    kept = make_agent(PPO, epochs=4, adaptive_kl=Constant(last))
    kept.update(rollout_of(kept, 0), step=T * N)
    assert kept.metrics(0)["learning_rate"] == pytest.approx(7e-3)
    assert "scale" not in agent.learner.state_dict()


def test_what_is_wanted_of_a_rollout_may_fall_over_the_run() -> None:
    agent = make_agent(PPO, epochs=4, adaptive_kl=Linear(1e9, 1e-9, T * N))
    scales = []
    for number in range(2):  # where the first rollout begins any distance is too short, where the second does too far
        agent.update(rollout_of(agent, number), step=(number + 1) * T * N)
        scales.append(agent.metrics(0)["learning_rate"] / 7e-3)
    assert scales == pytest.approx([1.5, 1.0])


def test_what_falls_may_be_held_for_a_share_of_the_run() -> None:
    whole = WholeRun(0.03, 0.01, Horizon(1000), held=0.7)
    assert [whole(step) for step in (0, 700, 850, 1000, 2000)] == pytest.approx([0.03, 0.03, 0.02, 0.01, 0.01])
    assert WholeRun(1.0, 0.0, Horizon(100), held=1.0)(99) == 1.0


def test_what_falls_geometrically_falls_by_the_same_factor_in_the_same_time() -> None:
    falling = WholeRun(0.08, 0.01, Horizon(160), 0.25, geometric=True)
    assert [falling(step) for step in (0, 40, 80, 120, 160, 200)] == pytest.approx([0.08, 0.08, 0.04, 0.02, 0.01, 0.01])
    config = ConfigManager(None).compose(
        ["agent=ppo", "env=pong", "agent.entropy_coef=0.04", "agent.entropy_coef_end=0.01", "agent.fall=geometric"]
    )
    builder = Builder(config.with_values({"training.total_env_frames": 400}))
    assert builder.falling(planned_spec(config), "entropy_coef")(50) == pytest.approx(0.02)
    with pytest.raises(UsageError, match=r"agent.entropy_coef_end=0 has none: it must be above 0"):
        ConfigManager(None).compose(["agent=ppo", "env=pong", "agent.entropy_coef_end=0", "agent.fall=geometric"])


def test_schedules_stand_where_the_rollout_began() -> None:
    """Or the last rollout of a run would be learned from with a rate of zero."""
    agent = make_agent(PPO, lr=Linear(1.0, 0.0, 2 * T * N))
    agent.update(rollout_of(agent, 0), step=2 * T * N)
    assert agent.learner.optimizer.param_groups[0]["lr"] == 0.5
    falling = replace(PPO, clip_range=Linear(0.2, 0.1, 100), entropy_coef=Linear(0.01, 0.0, 100))
    assert falling.coefficients(50) == pytest.approx({"clip_range": 0.15, "entropy_coef": 0.005})


def test_a_value_that_is_not_finite_stops_the_run() -> None:
    agent = make_agent(PPO)
    rollout = rollout_of(agent, 0)
    broken = replace(rollout, returns=torch.full((T, N), float("nan")))
    before = [param.clone() for param in agent.network.parameters()]
    with pytest.raises(FailureGate, match=r"non-finite return in the batch \(nan\) at step 99"):
        agent.update(broken, step=99)
    assert all(torch.equal(old, new) for old, new in zip(before, agent.network.parameters(), strict=True))


def test_acting_and_evaluation_draw_from_their_own_streams() -> None:
    agent = make_agent(PPO)
    obs = np.random.default_rng(0).normal(size=(N, 5)).astype(np.float32)
    state = agent.sampling.rng.bit_generator.state
    greedy = agent.act(obs, step=0, explore=False)
    assert agent.sampling.rng.bit_generator.state == state
    assert np.array_equal(greedy.action, agent.decide_greedily(obs).action)
    assert greedy.extras == {}
    decision = agent.act(obs, step=0, explore=True)
    assert set(decision.extras) == {"log_prob", "value"}
    assert decision.extras["value"] == pytest.approx(agent.values(obs))


def test_parts_restore_the_learner() -> None:
    agent, other = make_agent(PPO, epochs=2), make_agent(PPO, epochs=2)
    agent.update(rollout_of(agent, 0), step=T * N)
    for name, part in other.parts.items():
        part.load_state_dict(copy.deepcopy(agent.parts[name].state_dict()))
    for each in (agent, other):
        each.update(rollout_of(each, 1), step=2 * T * N)
    assert torch.equal(weights(agent), weights(other))
    assert other.updates == 4


def test_a_critic_with_an_optimizer_of_its_own_is_saved_and_loaded() -> None:
    def make() -> PolicyAgent:
        agent = make_agent(PPO, epochs=2, minibatches=2)
        both = [torch.optim.Adam(agent.network.parameters(), lr=1e-3) for _ in range(2)]
        agent.learner = PolicyLearner(
            agent.network, PPO, both[0], lr=Linear(1e-2, 0.0, 1000), epochs=2, max_grad_norm=None, target_kl=None,
            critic_optimizer=both[1],
        )  # fmt: skip
        agent.parts["learner"] = agent.learner
        return agent

    first, second = make(), make()
    batches = [rollout_of(first, seed) for seed in range(4)]
    for number, batch in enumerate(batches[:2]):
        first.update(batch, step=(number + 1) * T * N)
    assert all(group["lr"] < 1e-2 for group in first.learner.critic_optimizer.param_groups)  # type: ignore[attr-defined]
    second.network.load_state_dict(first.network.state_dict())
    second.learner.load_state_dict(copy.deepcopy(first.learner.state_dict()))
    second.minibatch_rng.bit_generator.state = first.minibatch_rng.bit_generator.state
    for number, batch in enumerate(batches[2:], 2):
        for agent in (first, second):
            agent.update(batch, step=(number + 1) * T * N)
    assert torch.equal(weights(first), weights(second))
    assert first.updates == second.updates == 16
