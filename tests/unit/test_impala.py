"""IMPALA: rollouts through shared memory, V-trace by the learner's own values, and workers that may be lost."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import multiprocessing

from retrograd import IMPALA
from retrograd.agents.a2c import A2CLoss
from retrograd.agents.impala import ImpalaAgent, SummedLoss, Unrolls
from retrograd.agents.policy import PolicyLearner, Sampling
from retrograd.build import Builder, build_trainer
from retrograd.build.impala import make_slots
from retrograd.build.memory import WORKER_BYTES, memory_needed
from retrograd.config import ConfigManager
from retrograd.core.errors import FailureGate, RetrogradError, UsageError
from retrograd.core.returns import vtrace
from retrograd.core.schedules import Constant
from retrograd.core.types import ArraySpec, ContinuousActions, DiscreteActions, EnvSpec, Step
from retrograd.distributed.actors import Actor
from retrograd.distributed.shared import SharedWeights
from retrograd.distributed.slots import Filled, SlotRollouts, Slots, gather
from retrograd.distributed.workers import Wires
from retrograd.networks.policy import make_actor_critic
from retrograd.tracking.csv import read_csv

CONTEXT = multiprocessing.get_context("spawn")
T, N = 4, 3
VECTOR = ArraySpec((5,), np.dtype(np.float32))
SPEC = EnvSpec("test", VECTOR, DiscreteActions(3))
SMALL: dict[str, Any] = {
    "eval.full_episodes": 2,
    "eval.num_envs": 2,
    "eval.record_video": False,
    "training.num_envs": 2,
    "training.light_eval_every_frames": None,
    "training.full_eval_every_frames": None,
    "training.log_every_steps": 100,
    "hardware.torch_threads": 1,
}


def make_agent(loss: Any = None, lr: float = 0.0) -> ImpalaAgent:
    torch.manual_seed(0)
    network = make_actor_critic(VECTOR, DiscreteActions(3), shared=True, channels_last=False)
    learner = PolicyLearner(
        network,
        loss or SummedLoss(A2CLoss(Constant(0.01), 0.5, normalize_advantage=False)),
        torch.optim.SGD(network.parameters(), lr=1.0),
        lr=Constant(lr),
        epochs=1,
        max_grad_norm=None,
        target_kl=None,
    )
    sampling = Sampling(np.random.default_rng(1), np.random.default_rng(2), sample_in_evaluation=False)
    return ImpalaAgent(network, learner, sampling, gamma=0.9, rho_clip=1.0, c_clip=1.0)


def play(rng: np.random.Generator, spec: EnvSpec = SPEC, rollouts: int = 2) -> tuple[Unrolls, dict[str, np.ndarray]]:
    """Rollouts of one worker with ends and time limits, gathered; and every step's true successor, to check with."""
    slots = Slots(spec, T, N, count=rollouts, context=CONTEXT)
    filler = SlotRollouts(slots)
    filled, said = [], []
    for _ in range(rollouts):
        for _ in range(T):
            terminated, truncated = rng.random((2, N)) < 0.25
            truncated &= ~terminated
            obs, next_obs = rng.normal(size=(2, N, 5)).astype(np.float32)
            action = (
                rng.integers(3, size=N)
                if isinstance(spec.action, DiscreteActions)
                else rng.normal(size=(N, 2)).astype(np.float32)
            )
            extras = {"log_prob": rng.normal(-1, 0.3, N).astype(np.float32), "value": np.zeros(N, np.float32)}
            reward = rng.normal(size=N).astype(np.float32)
            filler.add(Step(obs, action, reward, terminated, truncated, truncated, next_obs, extras))
            said.append({"next_obs": next_obs, "obs": obs, "action": action, "reward": reward, "truncated": truncated})
        assert filler.full
        slot, successors = filler.finish(lambda obs: obs)
        filled.append(Filled(0, slot, 0, successors))
    # rollouts lie side by side: [T, rollouts * N]
    beside = {
        name: np.concatenate(
            [np.stack([step[name] for step in said[r * T : (r + 1) * T]]) for r in range(rollouts)], axis=1
        )
        for name in said[0]
    }
    return gather(filled, [slots]), beside


@pytest.mark.parametrize("actions", [DiscreteActions(3), ContinuousActions(-np.ones(2), np.ones(2))])
def test_what_was_played_comes_out_of_the_shared_memory(actions: Any) -> None:
    batch, said = play(np.random.default_rng(0), EnvSpec("test", VECTOR, actions))
    for name in ("obs", "action", "reward"):
        assert np.array_equal(getattr(batch, name), said[name])
    assert batch.reward.shape == (T, 2 * N)
    # behind every last step and every time limit there is the true successor
    wanted = said["truncated"].copy()
    wanted[-1] = True
    found = np.zeros_like(wanted)
    found[batch.successor_step, batch.successor_row] = True
    assert np.array_equal(found, wanted)
    assert wanted[:-1].any()
    assert np.array_equal(batch.successor_obs, said["next_obs"][batch.successor_step, batch.successor_row])


def test_the_update_is_the_papers() -> None:
    """V-trace of the learner's own values, summed losses, no gradient through the targets: one SGD step by hand."""
    agent, twin = make_agent(lr=0.01), make_agent()
    batch, _ = play(np.random.default_rng(3))
    rows = 2 * N
    obs, action = torch.from_numpy(np.asarray(batch.obs)).flatten(0, 1), torch.from_numpy(batch.action).flatten()
    policy, value = twin.network(obs)
    log_prob = policy.log_prob(action)
    with torch.no_grad():
        now = value.view(T, rows).numpy()
        next_value = np.concatenate([now[1:], np.zeros((1, rows), np.float32)])
        after = twin.network.value(torch.from_numpy(np.asarray(batch.successor_obs))).numpy()
        next_value[batch.successor_step, batch.successor_row] = after
        ratio = log_prob.view(T, rows).numpy() - batch.log_prob
        discount = np.where(batch.terminated, 0.0, 0.9).astype(np.float32)
        right = vtrace(ratio, batch.reward, discount, now, next_value, batch.cut)
    target, advantage = torch.from_numpy(right.target).flatten(), torch.from_numpy(right.advantage).flatten()
    policy_loss = -(advantage * log_prob).sum()
    loss = policy_loss + 0.5 * (0.5 * (target - value) ** 2).sum() - 0.01 * policy.entropy().sum()
    gradients = torch.autograd.grad(loss, list(twin.network.parameters()))
    metrics = agent.update(batch, step=T * rows).metrics
    for param, old, gradient in zip(agent.network.parameters(), twin.network.parameters(), gradients, strict=True):
        assert torch.allclose(param, old - 0.01 * gradient, atol=1e-6)
    assert float(metrics["rho_mean"]) == pytest.approx(float(np.minimum(np.exp(ratio), 1).mean()))
    assert float(metrics["rho_mean"]) < 0.95
    assert agent.updates == 1


def test_a_broken_weight_is_named_and_not_what_it_made_of_the_batch() -> None:
    agent = make_agent(lr=0.5)
    weight = next(agent.network.parameters())
    weight.data.view(-1)[0] = float("nan")
    with pytest.raises(FailureGate, match=r"non-finite weight \(nan\) at step 24"):
        agent.update(play(np.random.default_rng(0))[0], step=24)


def test_weights_travel_with_their_version() -> None:
    agent, player = make_agent(lr=0.5), make_agent()
    shared = SharedWeights(agent.network, CONTEXT)
    agent.update(play(np.random.default_rng(0))[0], step=24)
    assert shared.copy_to(player.network) == 0
    assert not torch.equal(next(player.network.parameters()), next(agent.network.parameters()))
    shared.publish(agent.network, agent.updates)
    assert shared.copy_to(player.network) == 1
    for mine, theirs in zip(agent.network.parameters(), player.network.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_lock_that_nobody_lets_go_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a worker leaves it that was killed in the middle of reading."""
    monkeypatch.setattr("retrograd.distributed.shared.LOCK_SECONDS", 0.01)
    network = make_agent().network
    shared = SharedWeights(network, CONTEXT)
    shared.lock.acquire()
    with pytest.raises(RetrogradError, match="stayed locked"):
        shared.publish(network, 1)


@pytest.mark.parametrize(("workers", "per_update", "count"), [(2, 2, 2), (1, 4, 5), (4, 1, 2), (2, 5, 4)])
def test_there_are_slots_enough_for_an_update(workers: int, per_update: int, count: int) -> None:
    """Or the learner would wait for workers that wait for it."""
    overrides = [f"agent.workers={workers}", f"agent.rollouts_per_update={per_update}", "env=cartpole"]
    config = ConfigManager(None).compose(["agent=impala", *overrides])
    slots = make_slots(Builder(config), SPEC, CONTEXT)
    assert len(slots) == workers
    assert slots[0].count == count
    assert workers * (count - 1) >= per_update


def test_memory_counts_workers_and_their_slots() -> None:
    one, two = (
        memory_needed(ConfigManager(None).compose(["agent=impala", f"agent.workers={workers}"])) for workers in (1, 2)
    )
    rollout = 20 * 16 * 4 * 84 * 84
    assert two - one == WORKER_BYTES + (2 * 2 - 3) * rollout  # two slots each, where one worker needs three
    a2c, a3c = (
        memory_needed(ConfigManager(None).compose([f"agent={name}", "training.num_envs=1"])) for name in ("a2c", "a3c")
    )
    assert a3c - a2c == 2 * (WORKER_BYTES + 5 * 4 * 84 * 84)


def test_a_worker_that_waits_leaves_when_nobody_learns_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_agent()
    running: Any = SimpleNamespace(value=0)
    wires = Wires(0, SharedWeights(agent.network, CONTEXT), None, CONTEXT.Pipe()[0], running, total_steps=100)
    full: Any = SimpleNamespace(free=threading.Semaphore(0))
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: SimpleNamespace(is_alive=lambda: False))
    with pytest.raises(SystemExit):
        Actor(agent.network, agent.sampling, wires, full)


def test_learn_and_evaluate(tmp_path: Path) -> None:
    settings = {**SMALL, "output_dir": str(tmp_path), "agent.workers": 1}
    learner = IMPALA("CartPole-v1", settings, quiet=True).learn(400)
    assert learner.folder is not None
    assert learner.agent.updates == 5  # type: ignore[attr-defined]  # of two rollouts of 20 steps in two rows
    assert json.loads((learner.folder / "summary.json").read_text())["step"] == 400
    last = read_csv(learner.folder / "update_log.csv")[-1]
    assert last["lag_updates"] >= 0
    assert 0 < last["rho_mean"] <= 1
    loaded = IMPALA.load(learner.folder)
    obs = np.ones(4, np.float32)
    assert loaded.predict(obs)[0] == learner.predict(obs)[0]
    assert loaded.evaluate(2)["episodes"] == 2


def test_a_killed_worker_ends_the_run_and_hangs_nobody(tmp_path: Path) -> None:
    config = ConfigManager(None).compose(["agent=impala", "env=cartpole"])
    trainer = build_trainer(config.with_values({**SMALL, "output_dir": str(tmp_path)}), quiet=True)
    try:
        trainer.train_episode()  # until the first game has ended: both sides are at work
        victim = multiprocessing.active_children()[0].pid
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        begun = time.monotonic()
        with pytest.raises(RetrogradError, match=r"worker . ended with exit code -9"):
            trainer.train()
        assert time.monotonic() - begun < 60
        assert not multiprocessing.active_children()
    finally:
        trainer.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"training.normalize_observations": True}, "agent=impala cannot normalize"),
        ({"agent.rho_clip": 0}, "agent.rho_clip=0 must be a number above 0"),
        ({"agent.rollouts_per_update": 0}, "agent.rollouts_per_update=0"),
        ({"agent.gae_lambda": 0.5}, "unknown key agent.gae_lambda"),
    ],
)
def test_bad_settings_fail_before_anything_starts(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        IMPALA("CartPole-v1", {**SMALL, "output_dir": str(tmp_path), **settings}, quiet=True).learn(10)
    assert not list(tmp_path.iterdir())


def test_defaults_are_the_papers() -> None:
    config = ConfigManager(None).compose(["agent=impala"])
    agent, preset = config["agent"], config["preset"]
    rows = agent["rollouts_per_update"] * config["training"]["num_envs"]
    assert (agent["rollout_steps"], rows, agent["max_grad_norm"]) == (20, 32, 40.0)
    assert (agent["rho_clip"], agent["c_clip"], agent["entropy_coef"], agent["value_coef"]) == (1.0, 1.0, 0.01, 0.5)
    assert (preset["optimizer"], preset["lr"], preset["lr_end"]) == ("tf_rmsprop", 6e-4, 0.0)
    assert (preset["rmsprop_decay"], preset["rmsprop_eps"]) == (0.99, 0.1)
