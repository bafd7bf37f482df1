"""A saved policy may be judged in another way than it was trained with; what makes it another agent may not change."""

import pytest

from retrograd import DQN, PPO
from retrograd.api import read_checkpoint
from retrograd.core.errors import UsageError


def test_a_policy_may_be_judged_greedily(tmp_path):
    saved = PPO("CartPole-v1", quiet=True).save(tmp_path)
    assert read_checkpoint(saved)[1]["agent"]["eval_policy"] == "sample"
    assert read_checkpoint(saved, {"agent.eval_policy": "greedy"})[1]["agent"]["eval_policy"] == "greedy"
    with pytest.raises(UsageError, match=r"agent\.gamma=0\.5 conflicts"):
        read_checkpoint(saved, {"agent.gamma": 0.5})


def test_an_agent_without_a_policy_has_no_such_key(tmp_path):
    saved = DQN("CartPole-v1", quiet=True).save(tmp_path)
    with pytest.raises(UsageError, match="eval_policy"):
        read_checkpoint(saved, {"agent.eval_policy": "greedy"})
