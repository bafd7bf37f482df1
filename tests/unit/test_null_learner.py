"""The null learner: everything around a learner is done, nothing is learned."""

from __future__ import annotations

import numpy as np
import pytest

from retrograd.agents.baselines import RandomAgent
from retrograd.build import build_trainer
from retrograd.config import ConfigManager
from retrograd.core.errors import UsageError
from retrograd.core.types import ContinuousActions

SMALL = [
    "env=cartpole", "training.null_learner=true", "training.total_env_frames=480", "training.num_envs=4",
    "training.light_eval_every_frames=null", "training.full_eval_every_frames=null", "eval.full_episodes=1",
    "eval.record_video=false", "hardware.torch_threads=1", "hardware.device=cpu",
]  # fmt: skip
REPLAY = ["training.warmup_random_steps=80", "agent.replay_start_size=80", "replay.capacity=200", "agent.batch_size=8"]
LOOPS = {
    "dqn": (["agent=dqn", *REPLAY], 101),  # after steps 80, 84, … 480: one update each four steps
    "modern": (["agent=modern", "replay=prioritized", *REPLAY], 101),
    "ppo": (["agent=ppo", "agent.rollout_steps=10"], 12),
    "pqn": (["agent=pqn", "training.num_envs=4", "agent.rollout_steps=10", "agent.minibatches=1"], 12),
}


def compose(*words: str):
    return ConfigManager(None).compose([*SMALL, *words])


@pytest.mark.parametrize("name", LOOPS)
def test_the_loop_runs_with_all_its_updates_and_no_network(name, tmp_path):
    words, updates = LOOPS[name]
    trainer = build_trainer(compose(*words, f"output_dir={tmp_path}", "run_name=x"), quiet=True)
    try:
        summary = trainer.train()
        assert set(trainer.agent.parts) == {"counters"}
        if name == "modern":  # priorities come back as if something had been learned
            assert trainer.loop.replay.sampler.largest > 1.0
    finally:
        trainer.close()
    assert summary["updates"] == updates
    assert summary["step"] == 480
    assert "track: custom" in (tmp_path / "x" / ".hydra" / "config.yaml").read_text()


def test_it_is_said_aloud():
    assert any("Nothing is learned" in note for note in compose("agent=dqn").notes)


@pytest.mark.parametrize("agent", ["recurrent_ppo", "a3c", "impala", "random"])
def test_loops_that_need_their_learner_refuse(agent):
    with pytest.raises(UsageError, match=r"null_learner=true has no use with .*value, ppo, a2c, pqn"):
        compose(f"agent={agent}")


@pytest.mark.parametrize(
    ("low", "high"),
    [(-1.0, 1.0), (-np.inf, np.inf), (2.0, np.inf), (-np.inf, -2.0)],
    ids=["bounded", "free", "from below", "from above"],
)
def test_random_play_keeps_to_the_bounds_there_are(low, high):
    box = ContinuousActions(np.array([low, 0.0], np.float32), np.array([high, 1.0], np.float32))
    action = RandomAgent(box, np.random.default_rng(0)).act(np.zeros((500, 3)), step=0, explore=True).action
    assert action.shape == (500, 2)
    assert action.dtype == np.float32
    assert np.isfinite(action).all()
    assert (action >= box.low).all()
    assert (action <= box.high).all()
    assert action.std(axis=0).min() > 0.2
