"""A3C: shared weights, no lost update, and one worker is A2C."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import multiprocessing

from retrograd import A3C
from retrograd.agents.a2c import A2CLoss
from retrograd.agents.policy import PolicyAgent, PolicyLearner, RolloutLearner, Sampling
from retrograd.api import evaluate_checkpoint
from retrograd.config import ConfigManager
from retrograd.core.errors import FailureGate, RetrogradError, UsageError
from retrograd.core.schedules import Constant
from retrograd.core.types import ArraySpec, DiscreteActions, Rollout
from retrograd.distributed.shared import SharedLearner, SharedParameters, SharedWeights
from retrograd.distributed.workers import Team
from retrograd.networks.optimizers import TensorFlowRMSprop
from retrograd.networks.policy import ActorCritic, make_actor_critic

T, N = 5, 1
LOSS = A2CLoss(Constant(0.01), value_coef=0.5, normalize_advantage=False)
SMALL: dict[str, Any] = {
    "eval.full_episodes": 2,
    "eval.num_envs": 2,
    "eval.record_video": False,
    "training.light_eval_every_frames": None,
    "training.full_eval_every_frames": None,
    "training.log_every_steps": 100,
    "hardware.torch_threads": 1,
}
CONTEXT = multiprocessing.get_context("spawn")


def make_network() -> ActorCritic:
    torch.manual_seed(0)
    spec = ArraySpec((5,), np.dtype(np.float32))
    return make_actor_critic(spec, DiscreteActions(3), shared=True, channels_last=True)


def make_optimizer(network: ActorCritic) -> TensorFlowRMSprop:
    return TensorFlowRMSprop(network.parameters(), 7e-3, 0.99, 1e-5)


def make_agent(network: ActorCritic, learner: RolloutLearner) -> PolicyAgent:
    sampling = Sampling(np.random.default_rng(1), np.random.default_rng(2), sample_in_evaluation=False)
    return PolicyAgent(network, learner, sampling, minibatches=1, minibatch_rng=np.random.default_rng(3))


@torch.no_grad()
def rollout_of(agent: PolicyAgent, seed: int) -> Rollout:
    generator = torch.Generator().manual_seed(seed)
    obs = torch.randn(T, N, 5, generator=generator)
    action = torch.randint(3, (T, N), generator=generator)
    policy, value = agent.network(obs.flatten(0, 1))
    log_prob, value = policy.log_prob(action.flatten()).view(T, N), value.view(T, N)
    advantage = torch.randn(T, N, generator=generator)
    return Rollout(obs, action, torch.zeros(T, N), log_prob, value, advantage, advantage + value, {})


def shared_agent(shared: SharedParameters) -> PolicyAgent:
    network = make_network()
    learner = SharedLearner(network, LOSS, shared, lr=Constant(7e-3), max_grad_norm=0.5, global_step=lambda: 0)
    return make_agent(network, learner)


def test_one_worker_is_a2c() -> None:
    """REQ ALGO-3: bit for bit after 20 updates."""
    network = make_network()
    plain = PolicyLearner(
        network, LOSS, make_optimizer(network), lr=Constant(7e-3), epochs=1, max_grad_norm=0.5, target_kl=None
    )
    a2c = make_agent(network, plain)
    other = make_network()
    shared = SharedParameters(other, make_optimizer(other), CONTEXT)
    a3c = shared_agent(shared)
    for update in range(20):
        for agent in (a2c, a3c):
            agent.update(rollout_of(agent, update), step=(update + 1) * T * N)
    for param, local, weight in zip(network.parameters(), a3c.network.parameters(), shared.weights, strict=True):
        assert torch.equal(param, local)
        assert torch.equal(param, weight)
    assert a3c.updates == 20


def test_gradients_do_not_add_up_over_rollouts() -> None:
    """The same rollout three times at a rate of zero is the same gradient three times."""
    network = make_network()
    shared = SharedParameters(network, make_optimizer(network), CONTEXT)
    agent = shared_agent(shared)
    agent.learner.lr = Constant(0.0)
    rollout = rollout_of(agent, 0)
    norms = [float(agent.update(rollout, step=0).metrics["grad_norm"]) for _ in range(3)]
    assert norms[0] > 0
    assert norms == [norms[0]] * 3


def test_a_gradient_that_is_not_finite_reaches_nobody() -> None:
    network = make_network()
    shared = SharedParameters(network, make_optimizer(network), CONTEXT)
    agent = shared_agent(shared)
    before = [weight.clone() for weight in shared.weights]
    broken = replace(rollout_of(agent, 0), returns=torch.full((T, N), float("nan")))
    with pytest.raises(FailureGate, match="non-finite return in the batch"):
        agent.update(broken, step=0)
    assert all(torch.equal(old, new) for old, new in zip(before, shared.weights, strict=True))


IN_A_PROCESS = """
from torch import multiprocessing, ones_like, set_num_threads

def push(shared, count):
    set_num_threads(1)
    for _ in range(count):
        shared.apply([ones_like(weight) for weight in shared.weights], lr=0.001)

def broken_env():
    import gymnasium

    if multiprocessing.parent_process() is not None:
        raise ValueError("no such luck")
    return gymnasium.make("CartPole-v1")
"""


@pytest.fixture
def in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that new processes can import, as they cannot this one."""
    (tmp_path / "in_a_process.py").write_text(IN_A_PROCESS)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("in_a_process", None)
    return importlib.import_module("in_a_process")


def test_no_update_is_lost(in_a_process: Any) -> None:
    """Two processes, each gradient 1: with a square that stays 1 each update moves a weight by exactly the rate."""
    network = torch.nn.Linear(64, 64)
    torch.nn.init.zeros_(network.weight)
    torch.nn.init.zeros_(network.bias)
    optimizer = TensorFlowRMSprop(network.parameters(), 0.001, 0.99, 0.0)
    shared = SharedParameters(network, optimizer, CONTEXT)
    processes = [CONTEXT.Process(target=in_a_process.push, args=(shared, 1000)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert shared.updates.value == 2000
    for weight in shared.weights:
        assert torch.allclose(weight, torch.full_like(weight, -2.0), atol=1e-3)
    # the optimizer of the first process sees the statistics that the others made
    assert optimizer.state[network.weight]["square"].is_shared()


@pytest.mark.nightly
def test_learn_evaluate_and_go_on(tmp_path: Path) -> None:
    settings = {**SMALL, "output_dir": str(tmp_path), "preset.lr_end": None}
    learner = A3C("CartPole-v1", settings, quiet=True).learn(400)
    trainer: Any = learner._trainer
    assert 400 <= trainer.run.step < 420
    assert trainer.run.episodes > 0
    assert learner.folder is not None
    assert evaluate_checkpoint(learner.folder)["episodes"] == 2
    before = [param.clone() for param in learner.agent.network.parameters()]  # type: ignore[attr-defined]
    learner.learn(100)
    after = learner.agent.network.parameters()  # type: ignore[attr-defined]
    assert any(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    assert learner.agent.updates > 80  # type: ignore[attr-defined]


def test_a_worker_that_fails_ends_the_run(tmp_path: Path, in_a_process: Any) -> None:
    learner = A3C(in_a_process.broken_env, {**SMALL, "output_dir": str(tmp_path)}, quiet=True)
    with pytest.raises(RetrogradError, match=r"(?s)worker . failed.*no such luck"):
        learner.learn(400)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"preset.optimizer": "adam"}, "needs tf_rmsprop"),
        ({"training.normalize_rewards": True}, "cannot normalize"),
    ],
)
def test_what_workers_cannot_share_is_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        A3C("CartPole-v1", {**SMALL, "output_dir": str(tmp_path), **settings}, quiet=True).learn(10)


def test_an_environment_that_cannot_travel_is_refused(tmp_path: Path) -> None:
    import gymnasium

    made = lambda: gymnasium.make("CartPole-v1")  # noqa: E731 - the point: it has no module to be found in
    with pytest.raises(UsageError, match="cannot be sent"):
        A3C(made, {**SMALL, "output_dir": str(tmp_path)}, quiet=True).learn(10)


def test_defaults_are_the_papers() -> None:
    config = ConfigManager(None).compose(["agent=a3c"])
    assert (config["agent"]["rollout_steps"], config["training"]["num_envs"]) == (5, 1)
    assert (config["preset"]["optimizer"], config["preset"]["rmsprop_decay"]) == ("tf_rmsprop", 0.99)
    assert config["preset"]["rmsprop_eps"] == pytest.approx(0.1 / 5**2)
    assert config["agent"]["workers"] <= (os.cpu_count() or 2) * 2


def fail_when_told_to_stop(wires):
    while not wires.stopping():
        time.sleep(0.01)
    raise RuntimeError("the game broke at the end")


def test_a_worker_that_fails_while_it_is_stopped_is_heard(caplog):
    shared = SharedWeights(make_network(), CONTEXT)
    team = Team(fail_when_told_to_stop, 1, shared, CONTEXT)
    team.stop()
    assert "worker 0 failed" in caplog.text
    assert "the game broke at the end" in caplog.text


def wait_to_be_stopped(wires):
    wires.reports.send("begun")
    while not wires.stopping():
        time.sleep(0.01)
    sys.exit()


def test_workers_leave_signals_to_the_first_process():
    """Ctrl-C, SIGTERM and SIGUSR1 go to the whole group, and only the first process can save the run."""
    shared = SharedWeights(make_network(), CONTEXT)
    team = Team(wait_to_be_stopped, 1, shared, CONTEXT)
    run: Any = SimpleNamespace(stop_requested=False)
    while "begun" not in team.reports(run):
        pass
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        os.kill(team.processes[0].pid, number)
    assert list(team.reports(run)) == []
    team.stop()
    assert team.processes[0].exitcode == 0


def test_a_worker_that_the_stopping_signal_took_is_no_failure():
    shared = SharedWeights(make_network(), CONTEXT)
    team = Team(wait_to_be_stopped, 0, shared, CONTEXT)
    team.processes.append(SimpleNamespace(exitcode=-15, is_alive=lambda: False, join=lambda: None))
    asked: Any = SimpleNamespace(stop_requested=True)
    assert list(team.reports(asked)) == []
    asked.stop_requested = False
    with pytest.raises(RetrogradError, match="worker 0 ended with exit code -15"):
        list(team.reports(asked))


def wait_for_ever(wires):
    wires.reports.send("begun")
    while True:
        time.sleep(1)


def test_a_worker_that_does_not_leave_is_killed(monkeypatch):
    monkeypatch.setattr("retrograd.distributed.workers.STOP_SECONDS", 0.0)
    shared = SharedWeights(make_network(), CONTEXT)
    team = Team(wait_for_ever, 1, shared, CONTEXT)
    run: Any = SimpleNamespace(stop_requested=False)
    while "begun" not in team.reports(run):
        pass
    team.stop()
    assert team.processes[0].exitcode == -signal.SIGKILL
