"""Recorded updates and scaled gradients: what of them can be tried without CUDA, and what cannot."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from retrograd.agents.captured import Captured
from retrograd.agents.descent import LEAST_SCALE, Descent
from retrograd.build import Builder
from retrograd.config import ConfigManager
from retrograd.core.errors import FailureGate, RetrogradError
from retrograd.core.types import Transitions

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")


def make_agent(*words: str, device: str = "cpu"):
    manager = ConfigManager(None)
    builder = Builder(manager.compose(["env=cartpole", f"hardware.device={device}", *words]))
    envs = builder.environments()
    envs.close()
    return builder.agent(envs.spec)


def make_batch(seed: int, rows: int = 16, device: str = "cpu") -> Transitions:
    rng = np.random.default_rng(seed)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(shape, np.float32)).to(device)

    action = torch.from_numpy(rng.integers(2, size=rows)).to(device)
    weight = torch.ones(rows, device=device)
    return Transitions(numbers(rows, 4), action, numbers(rows), 0.9 * weight, numbers(rows, 4), weight, np.arange(rows))


def rerun(work):
    """In place of a CUDA graph: the same work again, its figures where the first ones were."""
    figures = work()

    def replay() -> None:
        for name, tensor in work().items():
            figures[name].copy_(tensor)

    return replay, figures


@pytest.mark.parametrize("agent", ["dqn", "c51", "qr_dqn", "munchausen"])
def test_replayed_updates_learn_the_same(agent):
    eager, recorded = make_agent(f"agent={agent}"), make_agent(f"agent={agent}")
    recorded._compute = Captured(recorded._learn_from, recorded.descent.gradients, rerun)
    kept = []
    for seed in range(4):
        expected, found = (one.update(make_batch(seed), step=seed) for one in (eager, recorded))
        assert {name: float(figure) for name, figure in found.metrics.items()} == {
            name: float(figure) for name, figure in expected.metrics.items()
        }
        assert torch.equal(found.priority, expected.priority)
        kept.append((found.priority, expected.priority))
    assert all(torch.equal(one, two) for one, two in kept)  # later replays have not overwritten what was given out
    for one, two in zip(eager.online.parameters(), recorded.online.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_recording_that_computes_something_else_is_refused():
    agent = make_agent("agent=dqn")

    def broken(work):
        replay, figures = rerun(work)

        def replay_wrongly() -> None:
            replay()
            agent.descent.gradients()[0].mul_(1.5)

        return replay_wrongly, figures

    agent._compute = Captured(agent._learn_from, agent.descent.gradients, broken)
    before = [param.clone() for param in agent.online.parameters()]
    with pytest.raises(RetrogradError, match=r"another gradient 0 .*hardware.cuda_graph=false"):
        agent.update(make_batch(0), step=0)
    assert all(torch.equal(one, two) for one, two in zip(before, agent.online.parameters(), strict=True))


def test_a_recording_that_does_nothing_is_refused():
    """As CUDA gives it, with a warning only, when the work went to another device than the one that was recorded."""
    agent = make_agent("agent=dqn")
    agent._compute = Captured(agent._learn_from, agent.descent.gradients, lambda work: (lambda: None, work()))
    with pytest.raises(RetrogradError, match="the recorded update gives another"):
        agent.update(make_batch(0), step=0)


def test_a_recording_that_reads_the_first_batch_for_ever_is_refused():
    agent = make_agent("agent=dqn")

    def stale(work):
        kept = {name: figure.clone() for name, figure in work().items()}
        replay, figures = rerun(work)

        def replay_stale() -> None:
            replay()
            for name, figure in kept.items():
                figures[name].copy_(figure)

        return replay_stale, figures

    agent._compute = Captured(agent._learn_from, agent.descent.gradients, stale)
    with pytest.raises(RetrogradError, match="the recorded update gives another"):
        agent.update(make_batch(0), step=0)


def test_a_batch_of_another_size_is_refused():
    agent = make_agent("agent=dqn")
    agent._compute = Captured(agent._learn_from, agent.descent.gradients, rerun)
    agent.update(make_batch(0), step=0)
    with pytest.raises(RetrogradError, match="after one of"):
        agent.update(make_batch(1, rows=8), step=1)


def test_the_gate_stands_behind_a_replay():
    agent = make_agent("agent=dqn")
    agent._compute = Captured(agent._learn_from, agent.descent.gradients, rerun)
    agent.update(make_batch(0), step=0)
    before = [param.clone() for param in agent.online.parameters()]
    bad = make_batch(1)
    with pytest.raises(FailureGate, match="reward in the batch"):
        agent.update(replace(bad, reward=bad.reward * float("nan")), step=1)
    assert all(torch.equal(one, two) for one, two in zip(before, agent.online.parameters(), strict=True))


def descent(scale: float | None) -> tuple[torch.Tensor, Descent]:
    param = torch.tensor([1.0, 2.0], requires_grad=True)
    scaler = None if scale is None else torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=1000)
    optimizer = torch.optim.SGD([param], lr=0.5)
    return param, Descent(optimizer, [param], max_grad_norm=1.0, scaler=scaler)


def test_a_scaled_loss_makes_the_same_step():
    """A power of two is lost nowhere on the way."""
    (plain, one), (scaled, two) = descent(None), descent(2.0**12)
    for param, down in ((plain, one), (scaled, two)):
        norm = down.backward((param.square() * 3).sum())
        assert float(norm) == pytest.approx(float(torch.tensor([6.0, 12.0]).norm()))
        assert float(down.gated(norm)) == float(norm)
        down.step(norm)
    assert torch.equal(plain, scaled)
    assert not torch.equal(plain, torch.tensor([1.0, 2.0]))


def test_an_overflow_leaves_the_step_out_and_halves_the_scale():
    param, down = descent(2.0**12)
    norm = down.backward((param * torch.tensor([1e38, 1.0])).sum())
    assert not torch.isfinite(norm)
    assert float(down.gated(norm)) == 0.0
    down.step(norm)
    assert torch.equal(param, torch.tensor([1.0, 2.0]))
    assert down.scaler is not None
    assert down.scaler.get_scale() == 2.0**11


def test_a_step_that_is_left_out_lets_the_next_one_be_made():
    """As a policy does that has moved too far (agent.target_kl)."""
    param, down = descent(2.0**12)
    down.backward(param.square().sum())
    down.skip()
    assert torch.equal(param, torch.tensor([1.0, 2.0]))
    down.step(down.backward(param.square().sum()))
    assert not torch.equal(param, torch.tensor([1.0, 2.0]))


def test_an_overflow_at_the_smallest_scale_closes_the_gate():
    param, down = descent(LEAST_SCALE)
    norm = down.backward((param * float("inf")).sum())
    assert not torch.isfinite(down.gated(norm))


@needs_cuda
@pytest.mark.parametrize("agent", ["dqn", "c51", "qr_dqn"])
def test_a_cuda_graph_learns_what_eager_learns(agent):
    words = [f"agent={agent}", "preset=modern"]
    eager = make_agent(*words, device="cuda")
    recorded = make_agent(*words, "hardware.cuda_graph=true", device="cuda")
    for seed in range(5):
        for one in (eager, recorded):
            one.update(make_batch(seed, device="cuda"), step=seed)
    for one, two in zip(eager.online.parameters(), recorded.online.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


@needs_cuda
def test_float16_on_cuda_learns_with_a_scale_and_saves_it():
    agent = make_agent("agent=dqn", "env=retrograd/Catch-v0", "hardware.autocast=float16", device="cuda")
    assert agent.descent.scaler is not None
    assert "scale" in agent.parts["scaler"].state_dict()
