"""n-step transitions against a brute-force sum, over many short games of several rows."""

from __future__ import annotations

import numpy as np
import pytest

from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.replay import NStep, RawStorage, Replay, Uniform

GAMMA = 0.97
SPEC = EnvSpec("count", ArraySpec((1,), np.dtype(np.float64)), DiscreteActions(3))


def play(seed: int, num_envs: int, games: int) -> list[list[dict[str, float]]]:
    """For every row its steps in order: games of 1 to 12 steps that end in every way, with lost lives between."""
    rng = np.random.default_rng(seed)
    rows: list[list[dict[str, float]]] = []
    for _ in range(num_envs):
        steps: list[dict[str, float]] = []
        for _ in range(games):
            length, limit = int(rng.integers(1, 13)), bool(rng.random() < 0.5)
            for t in range(length):
                last = t == length - 1
                steps.append({
                    "obs": float(rng.integers(1 << 40)),
                    "reward": float(np.float32(rng.normal())),
                    "terminated": (last and not limit) or bool(rng.random() < 0.1),
                    "truncated": last and limit,
                    "reset": last,
                })  # fmt: skip
            for t in range(len(steps) - length, len(steps)):
                steps[t]["next"] = steps[t]["obs"] + 0.5 if steps[t]["reset"] else steps[t + 1]["obs"]
        rows.append(steps)
    return rows


def brute_force(steps: list[dict[str, float]], start: int, n_steps: int) -> tuple[float, float, float]:
    """Return, discount, successor."""
    total, k = 0.0, 0
    while True:
        step = steps[start + k]
        total += GAMMA**k * step["reward"]
        k += 1
        if step["terminated"]:
            return total, 0.0, step["next"]
        if step["truncated"] or step["reset"] or k == n_steps:
            return total, GAMMA**k, step["next"]


@pytest.mark.parametrize("n_steps", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("num_envs", [1, 2, 4])
def test_equals_brute_force(n_steps: int, num_envs: int) -> None:
    """REQ REPLAY-4: 10,000 games in all; as many transitions as steps, each equal."""
    rows = play(10 * n_steps + num_envs, num_envs, 700 // num_envs)
    shortest = min(map(len, rows))
    rows = [steps[:shortest] for steps in rows]
    replay = Replay(RawStorage(SPEC, 3 * shortest * num_envs, num_envs), Uniform(), NStep(n_steps, GAMMA),
                    np.random.default_rng(0))  # fmt: skip
    for t in range(shortest):
        now = [steps[t] for steps in rows]
        replay.add(Step(
            obs=np.array([[one["obs"]] for one in now]),
            action=np.zeros(num_envs, int),
            reward=np.array([one["reward"] for one in now], np.float32),
            terminated=np.array([one["terminated"] for one in now], bool),
            truncated=np.array([one["truncated"] for one in now], bool),
            reset=np.array([one["reset"] for one in now], bool),
            next_obs=np.array([[one["next"]] for one in now]),
        ))  # fmt: skip
    slot = np.flatnonzero(replay.starts.valid)
    batch = replay.reader.read(replay.storage, slot, np.ones(len(slot), np.float32), replay._stage)
    found = {}
    for place, obs in enumerate(batch.obs[:, 0].tolist()):
        found[obs] = (float(batch.reward[place]), float(batch.discount[place]), float(batch.next_obs[place, 0]))
    wanted = {}
    for steps in rows:
        known = len(steps)
        while known > 0 and not (steps[known - 1]["terminated"] or steps[known - 1]["reset"]):
            known -= 1  # the last game may be cut off: its last windows are not complete
        for start in range(max(known, len(steps) - n_steps + 1)):
            total, discount, successor = brute_force(steps, start, n_steps)
            wanted[steps[start]["obs"]] = (float(np.float32(total)), float(np.float32(discount)), successor)
    assert found == wanted


def test_miscounted_steps_are_found() -> None:
    replay = Replay(RawStorage(SPEC, 60, 2), Uniform(), NStep(3, GAMMA), np.random.default_rng(0))
    for t in range(40):
        end = np.array([t % 7 == 6, t % 11 == 10])
        obs = np.full((2, 1), float(t))
        replay.add(Step(obs, np.zeros(2, int), np.zeros(2, np.float32), end, ~end & end, end, obs + 0.5))
        replay.check_valid()
    replay.reader._waiting += 1
    with pytest.raises(AssertionError, match="steps waiting"):
        replay.check_valid()
    replay.reader._waiting -= 1
    newest = replay.storage.slot(0, replay.storage.head[:1] - 1)
    assert not replay.starts.valid[newest]
    replay.starts.open(newest)
    with pytest.raises(AssertionError, match="beyond the newest step"):
        replay.check_valid()
