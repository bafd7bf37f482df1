"""Evaluation counts a fixed number of games per row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent
from retrograd.core.types import ArraySpec, Decision, DiscreteActions, EnvSpec, EnvStep, Episode, EvalResult, Update
from retrograd.training.evaluate import evaluate, summarize


class CountingEnvs:
    """Row r plays games of ``lengths[r]`` steps; the score of a game is its length, plus its number / 100."""

    def __init__(self, lengths: list[int]) -> None:
        self.num_envs = len(lengths)
        self.spec = EnvSpec("counting", ArraySpec((1,), np.dtype(np.float32)), DiscreteActions(2))
        self._lengths = np.array(lengths)
        self._age = np.zeros(len(lengths), np.int64)
        self._games = np.zeros(len(lengths), np.int64)

    def observe(self) -> np.ndarray:
        return self._age[:, None].astype(np.float32)

    def send(self, action: np.ndarray) -> None:
        assert action.shape == (self.num_envs,)
        self._age += 1

    def recv(self) -> EnvStep:
        ended = self._age >= self._lengths
        episodes = tuple(
            Episode(int(row), float(self._lengths[row] + self._games[row] / 100), int(self._lengths[row]), 4)
            for row in np.flatnonzero(ended)
        )
        successor = self.observe()
        self._games += ended
        self._age[ended] = 0
        # rows also lose "lives" at every second step, which must end nothing here
        terminated = ended | (successor[:, 0] % 2 == 0)
        return EnvStep(
            self.observe(),
            successor,
            np.zeros(self.num_envs),
            terminated,
            np.zeros(self.num_envs, bool),
            ended,
            episodes,
        )

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class MemoryAgent(Agent):
    """Counts in its recurrent state the steps since the row's game began."""

    def __init__(self) -> None:
        self.parts = {}
        self.calls: list[tuple[int, bool]] = []
        self.agreed = True

    def initial_state(self, num_envs: int) -> Any:
        return {"count": torch.zeros(num_envs, 1), "pair": (np.zeros((num_envs,)),)}

    def act(self, obs: Any, state: Any = None, *, step: int, explore: bool) -> Decision:
        self.calls.append((step, explore))
        self.agreed &= np.array_equal(state["count"].numpy(), obs) and np.array_equal(state["pair"][0], obs[:, 0])
        return Decision(np.zeros(len(obs), np.int64), {"count": state["count"] + 1, "pair": (state["pair"][0] + 1,)})

    def update(self, batch: Any, *, step: int) -> Update:
        raise NotImplementedError


def test_short_games_are_not_favored() -> None:
    result = evaluate(MemoryAgent(), CountingEnvs([2, 30, 5]), episodes=7, step=0)
    assert result.lengths == (2, 2, 2, 30, 30, 5, 5)
    assert result.returns == (2.0, 2.01, 2.02, 30.0, 30.01, 5.0, 5.01)


@pytest.mark.parametrize(("episodes", "lengths"), [(1, (4,)), (2, (4, 3)), (3, (4, 3, 9)), (4, (4, 4, 3, 9))])
def test_quota_when_games_do_not_divide_by_rows(episodes: int, lengths: tuple[int, ...]) -> None:
    assert evaluate(MemoryAgent(), CountingEnvs([4, 3, 9]), episodes=episodes, step=0).lengths == lengths


def test_recurrent_state_starts_fresh_with_each_game_only() -> None:
    agent = MemoryAgent()
    evaluate(agent, CountingEnvs([2, 7]), episodes=4, step=123)
    assert agent.agreed
    assert set(agent.calls) == {(123, False)}


def test_exploration_is_handed_on() -> None:
    agent = MemoryAgent()
    evaluate(agent, CountingEnvs([2]), episodes=1, step=5, explore=True)
    assert set(agent.calls) == {(5, True)}


def test_no_games_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="episodes is 0"):
        evaluate(MemoryAgent(), CountingEnvs([2]), episodes=0, step=0)


def test_summary_has_the_promised_keys_and_values() -> None:
    """REQ RUN-7."""
    result = EvalResult((1.0, 2.0, 6.0), (10, 20, 60))
    summary = summarize(result, step=9, game="pong", protocol="classic", baseline=(1.0, 5.0))
    assert summary == {
        "mean_return": 3.0,
        "std_return": pytest.approx(np.sqrt(14 / 3)),
        "min_return": 1.0,
        "max_return": 6.0,
        "median_return": 2.0,
        "mean_length": 30.0,
        "human_normalized": 0.5,
        "episodes": 3,
        "returns": [1.0, 2.0, 6.0],
        "step": 9,
        "game": "pong",
        "protocol": "classic",
    }
    unknown = summarize(result, step=9, game="pong", protocol="classic", baseline=None)
    assert unknown["human_normalized"] is None
    with pytest.raises(UsageError, match="baseline"):
        summarize(result, step=9, game="pong", protocol="classic", baseline=(2.0, 2.0))
