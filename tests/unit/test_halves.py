"""Double-buffered playing: the same rows and rollouts, decided in a fixed order, saved at any moment."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from retrograd import PPO
from retrograd.api import Learner
from retrograd.build import Builder, build_trainer
from retrograd.build.resume import resume_trainer
from retrograd.config import ConfigManager
from retrograd.contrib import RecurrentPPO
from retrograd.core.errors import UsageError
from retrograd.core.protocols import Agent
from retrograd.core.types import Decision, Episode, Obs, Step, Update
from retrograd.envs.halves import Halves
from retrograd.envs.toys.chains import Counter
from retrograd.envs.vector import GymVec
from retrograd.training.collect import collect
from retrograd.training.halves import HalvesPlayer
from retrograd.training.run import Plan, Run

LENGTHS = ((4, 3), (5, 7))
SMALL: dict[str, Any] = {
    "training.double_buffered": True,
    "training.num_envs": 4,
    "agent.rollout_steps": 8,
    "eval.full_episodes": 1,
    "eval.num_envs": 1,
    "eval.record_video": False,
    "training.light_eval_every_frames": None,
    "training.full_eval_every_frames": None,
    "hardware.torch_threads": 1,
}


def rows() -> Halves:
    first, second = (GymVec([partial(Counter, n) for n in lengths], seed=0, name="counter") for lengths in LENGTHS)
    return Halves(first, second)


class Noting(Agent):
    """Draws actions and notes whom it was asked for, in which order, and whether others were still emulated."""

    def __init__(self, envs: Halves) -> None:
        self.parts = {}
        self.envs = envs
        self.rng = np.random.default_rng(0)
        self.version = 0
        self.overlapped: list[bool] = []
        self.ahead: list[bool] = []  # of each half at each moment the run was saved

    def initial_state(self, num_envs: int) -> Any:
        return {"age": np.zeros(num_envs, np.int64)}

    def act(self, obs: Obs, state: Any = None, *, step: int, explore: bool) -> Decision:
        self.overlapped.append(any(half._pending is not None for half in self.envs.halves))  # type: ignore[attr-defined]
        drawn = self.rng.integers(2, size=len(np.asarray(obs)))
        extras = {"drawn": drawn.copy(), "age": state["age"].copy(), "version": np.full(len(drawn), self.version)}
        return Decision(drawn, {"age": state["age"] + 1}, extras)

    def update(self, batch: Any, *, step: int) -> Update:
        return Update({})


def play(
    steps: int, *, save_after: tuple[int, ...] = (), sync: int | None = None, every_episodes: int | None = None
) -> tuple[list[Step], Any, Noting]:
    """Vector steps; after some of them the run is saved and goes on in another one, with its own environments."""
    envs = rows()
    agent = Noting(envs)
    games: list[Episode] = []
    plan = Plan(steps * 4, 1, 10, sync_every_steps=sync, eval_every_episodes=every_episodes)
    run = Run(plan, on_episode=lambda game, *_: games.append(game), on_update=lambda _: None)
    player = HalvesPlayer(agent, envs, run)
    seen: list[Step] = []
    loop = collect(agent, envs, run, player)
    while (step := next(loop, None)) is not None:
        run.advance(4)
        seen.append(step)
        run.take_due()
        if sync and run.step % sync == 0:
            agent.version += 1
        if len(seen) in save_after:
            player.settle()
            saved, state = envs.snapshot(), player.state_dict()
            agent.ahead += [half["played"] is not None for half in state["groups"]]
            envs = rows()
            envs.restore(saved)
            agent.envs = envs
            player = HalvesPlayer(agent, envs, run)
            player.load_state_dict(state)
            loop = collect(agent, envs, run, player)
    return seen, games, agent


def test_steps_are_those_of_all_rows() -> None:
    """REQ REPLAY-7: each step goes from t to t + 1 in every row, and a game's memory begins with the game."""
    seen, games, agent = play(40)
    assert len(seen) == 40
    for before, after in pairwise(seen):
        assert np.array_equal(np.asarray(before.next_obs), np.asarray(before.obs) + 1)
        going = ~before.reset
        assert np.array_equal(np.asarray(after.obs)[going], np.asarray(before.next_obs)[going])
        assert np.array_equal(after.extras["age"], np.where(before.reset, 0, before.extras["age"] + 1))
        assert np.array_equal(after.action, after.extras["drawn"])
    lengths = np.array([*LENGTHS[0], *LENGTHS[1]])
    assert {(game.row, game.length_steps) for game in games} == set(enumerate(lengths.tolist()))
    # the very first decision meets quiet emulators, every other one is made while the other half plays
    assert agent.overlapped == [False] + [True] * 79


@pytest.mark.parametrize("every_episodes", [None, 1])
@pytest.mark.parametrize("save_after", [(1,), (7,), (3, 4, 12), tuple(range(1, 29))])
def test_a_run_that_was_saved_goes_on_exactly(save_after: tuple[int, ...], every_episodes: int | None) -> None:
    """REQ RUN-5: also while the first half is a step ahead, when a game's end brings a pause nobody could foresee."""
    plain, games, _ = play(30, every_episodes=every_episodes)
    saved, games_again, agent = play(30, save_after=save_after, every_episodes=every_episodes)
    assert games == games_again
    assert not any(agent.ahead[1::2])
    if len(save_after) > 3:
        assert any(agent.ahead) == (every_episodes is not None)
    for one, other in zip(plain, saved, strict=True):
        for name in ("obs", "action", "reward", "terminated", "truncated", "reset", "next_obs"):
            assert np.array_equal(getattr(one, name), getattr(other, name))
        assert all(np.array_equal(one.extras[name], other.extras[name]) for name in one.extras)


@pytest.mark.parametrize("sync", [4, 12, 20])
def test_no_step_is_played_with_the_weights_of_another_rollout(sync: int) -> None:
    seen, _, _ = play(30, sync=sync)
    versions = [np.unique(step.extras["version"]).tolist() for step in seen]
    assert versions == [[4 * number // sync] for number in range(30)]


@pytest.mark.parametrize("kind", [PPO, RecurrentPPO])
def test_learning_repeats_itself(kind: type[Learner], tmp_path: Path) -> None:
    runs = [kind("CartPole-v1", {**SMALL, "output_dir": str(tmp_path / name)}, quiet=True).learn(96) for name in "ab"]
    states = [learner.agent.parts["network"].state_dict() for learner in runs]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert runs[0].agent.updates > 0  # type: ignore[attr-defined]


def test_a_checkpoint_in_the_middle_of_a_rollout_is_gone_on_from_exactly(tmp_path: Path) -> None:
    """REQ RUN-5: through the file."""
    settings = {**SMALL, "output_dir": str(tmp_path), "training.total_env_frames": 96}
    config = ConfigManager(None).compose(["agent=recurrent_ppo", "env=cartpole"]).with_values(settings)
    whole = build_trainer(config.with_values({"run_name": "whole"}), quiet=True)
    whole.train()
    whole.close()
    part = build_trainer(config.with_values({"run_name": "part"}), quiet=True)
    for _ in range(11):
        part.advance()
    part.save_checkpoint()
    part.close()
    resumed = resume_trainer(part.folder, {}, quiet=True).trainer
    resumed.train()
    resumed.close()
    states = [trainer.agent.parts["network"].state_dict() for trainer in (whole, resumed)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert resumed.run.step == whole.run.step == 96


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["agent=ppo", "training.num_envs=7"], r"training.num_envs=7 must be even"),
        (["agent=dqn"], r"no use with agent.kind=value: it learns while others play"),
        (["agent=a3c"], r"no use with agent.kind=a3c: its workers play beside each other"),
        (["agent=ppo", "training.normalize_rewards=true"], "cannot normalize"),
    ],
)
def test_what_has_no_halves_is_refused(overrides: list[str], message: str) -> None:
    config = ConfigManager(None).compose(["env=cartpole", "training.double_buffered=true", *overrides])
    with pytest.raises(UsageError, match=message):
        Builder(config).environments()


def test_halves_must_be_alike() -> None:
    one, two = GymVec([Counter], seed=0, name="a"), GymVec([Counter] * 2, seed=0, name="a")
    with pytest.raises(UsageError, match="halves must be alike"):
        Halves(one, two)
