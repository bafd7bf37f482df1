"""Playing full games with a fixed agent, and the summary of their scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from retrograd.core.errors import Stopped, UsageError
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.statistics import human_normalized
from retrograd.core.types import Episode, EvalResult
from retrograd.training.state import reset_rows


def evaluate(
    agent: Agent,
    envs: VecEnv,
    *,
    episodes: int,
    step: int,
    explore: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> EvalResult:
    """Play ``episodes`` full games on all rows of ``envs`` at once.

    Every row has its quota of games fixed beforehand: taking whichever games end first would favor
    short ones. Every row must stand at the beginning of a game. Scores come ordered by row, then time. ``stop`` is
    asked at every step and ends the evaluation without a result: a signal must not wait for the last game.
    """
    if episodes < 1:
        raise UsageError(f"episodes is {episodes}: an evaluation needs at least 1 game")
    quotas = [len(range(row, episodes, envs.num_envs)) for row in range(envs.num_envs)]
    games: list[list[Episode]] = [[] for _ in quotas]
    fresh = agent.initial_state(envs.num_envs)
    state = fresh
    missing = episodes
    while missing:
        if stop():
            raise Stopped
        decision = agent.act(envs.observe(), state, step=step, explore=explore)
        envs.send(decision.action)
        answer = envs.recv()
        state = reset_rows(decision.state, fresh, answer.reset)
        for game in answer.episodes:
            # a row beyond its quota is stepped like the others, because rows go together, but not counted
            if len(games[game.row]) < quotas[game.row]:
                games[game.row].append(game)
                missing -= 1
    ordered = [game for row in games for game in row]
    return EvalResult(tuple(game.score for game in ordered), tuple(game.length_steps for game in ordered))


def summarize(
    result: EvalResult, *, step: int, game: str, protocol: str, baseline: tuple[float, float] | None
) -> dict[str, Any]:
    """The evaluation as it is printed and saved; ``baseline`` is (random score, human score)."""
    returns = np.asarray(result.returns, np.float64)
    mean = float(returns.mean())
    return {
        "mean_return": mean,
        "std_return": float(returns.std()),
        "min_return": float(returns.min()),
        "max_return": float(returns.max()),
        "median_return": float(np.median(returns)),
        "mean_length": float(np.mean(result.lengths)),
        "human_normalized": None if baseline is None else float(human_normalized(mean, *baseline)),
        "episodes": len(result.returns),
        "returns": [float(score) for score in result.returns],
        "step": step,
        "game": game,
        "protocol": protocol,
    }
