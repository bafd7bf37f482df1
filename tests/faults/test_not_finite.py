"""NaN and infinity at random moments, in every agent: caught before the optimizer's step, never saved, dumped.

REQ RUN-4. What is poisoned goes round: an observation, a reward, the loss, a gradient, a weight.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from poison import (
    OUTSIDE,
    POISONS,
    make_env,
    make_env_of_worker,
    optimizer_of,
    poison_update,
    tensors,
    update_number,
)
from torch import multiprocessing

from retrograd.build import build_trainer
from retrograd.config import ConfigManager
from retrograd.core.errors import FailureGate
from retrograd.training.checkpoint import load_newest
from retrograd.training.trainer import Trainer

EVERY = [
    "env=cartpole",
    "training.num_envs=2",
    "training.total_env_frames=4000",
    "training.light_eval_every_frames=null",
    "training.full_eval_every_frames=null",
    "training.log_every_steps=200",
    "eval.num_envs=1",
    "hardware.torch_threads=1",
    "hardware.device=cpu",
]
VALUE = [
    "training.warmup_random_steps=20",
    "agent.replay_start_size=20",
    "agent.update_frequency=2",
    "agent.batch_size=8",
    "replay.capacity=500",
]
AGENTS = {
    **{name: [f"agent={name}", *VALUE] for name in ("dqn", "double", "c51", "qr_dqn", "iqn", "munchausen", "rainbow")},
    "pqn": ["agent=pqn", "agent.rollout_steps=8", "agent.minibatches=2", "agent.epochs=2"],
    "a2c": ["agent=a2c"],
    "ppo": ["agent=ppo", "agent.rollout_steps=8", "agent.minibatches=2", "agent.epochs=2"],
    "recurrent_ppo": ["agent=recurrent_ppo", "agent.rollout_steps=8", "agent.minibatches=2", "agent.hidden_size=8"],
    # with two workers each; saves come often, so that a weight gone bad would be saved if nobody looked
    "a3c": ["agent=a3c", "checkpoint.every_frames=100"],
    "impala": ["agent=impala", "agent.rollout_steps=4", "checkpoint.every_frames=100"],
}


def check_failure(trainer: Trainer, message: str) -> None:
    """What a gate leaves behind: nothing that is not finite in the optimizer or on the disk, and a dump."""
    assert all(torch.isfinite(tensor).all() for tensor in tensors(optimizer_of(trainer.agent).state_dict()))
    saved = load_newest(trainer.folder)
    agent_parts = {key: saved.parts[key] for key in trainer.agent.parts}
    assert all(torch.isfinite(tensor).all() for tensor in tensors(agent_parts))
    report = json.loads((trainer.folder / "failure.json").read_text())
    assert report["error"] == message
    if "weight in" in message:  # found by the gate in front of a save, where there is no batch
        assert report["batch"] is None
        return
    with np.load(trainer.folder / report["batch"], allow_pickle=False) as dump:
        assert len(dump.files) >= 3


def inject(name: str, poison: str, at: int, folder: Path) -> str:
    """One poisoned run; the message of the gate that caught it."""
    config = ConfigManager(None).compose(
        [*EVERY, *AGENTS[name], f"output_dir={folder}", f"run_name={name}-{poison}-{at}", f"seed={at}"]
    )
    notes = folder / f"notes-{poison}-{at}"
    make = partial(make_env_of_worker, poison, at, str(notes)) if name == "a3c" else partial(make_env, poison, at)
    trainer = build_trainer(config, env=make, quiet=True)
    here = poison not in OUTSIDE and name != "a3c"  # the learner is in this process
    noted = poison_update(trainer.agent, poison, update_number(at)) if here else {}
    try:
        trainer.save_checkpoint()
        with pytest.raises(FailureGate, match="Failure gate triggered: non-finite") as caught:
            trainer.train()
        message = str(caught.value)
        if noted:
            assert all(
                torch.equal(old, new) or old.isnan().any()
                for old, new in zip(noted["before"], noted["after"], strict=True)
            )
        elif poison in OUTSIDE:
            assert f"{poison} of environment row" in message
        else:
            said = [json.loads(note.read_text()) for note in notes.iterdir()]
            assert said
            assert all(note == {"applied": 0} for note in said)
        if poison == "weight" and here:
            assert "weight" in message
            with pytest.raises(FailureGate, match="non-finite weight in"):
                trainer.save_checkpoint()
        check_failure(trainer, message)
        assert not multiprocessing.active_children()
        return message
    finally:
        trainer.close()


@pytest.mark.parametrize("name", ["dqn", "rainbow", "pqn", "ppo", "recurrent_ppo"])
def test_every_poison_is_caught_once(name: str, quick_path: Path) -> None:
    kinds = POISONS if name in ("dqn", "ppo") else ("gradient",)
    for number, poison in enumerate(kinds):
        message = inject(name, poison, 3 + number, quick_path)
        assert poison in message or poison == "loss"


@pytest.mark.faults
@pytest.mark.timeout(3600)  # each run of A3C and IMPALA starts two processes
@pytest.mark.parametrize("name", AGENTS)
def test_twenty_random_steps(name: str, quick_path: Path, record_property: Any) -> None:
    steps = np.random.default_rng(sum(map(ord, name))).choice(100, 20, replace=False)
    poisons = [(POISONS[number % len(POISONS)], at) for number, at in enumerate(steps.tolist())]
    caught = sum("non-finite" in inject(name, poison, at, quick_path) for poison, at in poisons)
    assert caught == len(poisons)
    record_property("figure", f"{caught} of {len(poisons)} caught before the optimizer's step, none saved")
