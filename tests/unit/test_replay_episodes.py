"""The episode buffer: whole games with their true last observation."""

from __future__ import annotations

import numpy as np
import pytest

from retrograd.core.errors import UsageError
from retrograd.core.types import Step
from retrograd.replay import EpisodeBuffer


def count_up(buffer: EpisodeBuffer, steps: int, lengths: tuple[int, ...]) -> None:
    """Row r plays games of lengths[r] steps that show the time within the game."""
    played = np.zeros(len(lengths), int)
    for _ in range(steps):
        reset = played + 1 == np.array(lengths)
        obs = played[:, None].astype(np.float32)
        off = np.zeros(len(lengths), bool)
        reward = played.astype(np.float32)
        buffer.add_step(Step(obs, played.copy(), reward, off, reset, reset, obs + 1, {"h": obs * 2}))
        played = np.where(reset, 0, played + 1)


def test_games_come_back_whole() -> None:
    """REQ REPLAY-5."""
    buffer = EpisodeBuffer(10, num_envs=2)
    count_up(buffer, 12, (3, 4))
    assert len(buffer) == 4 + 3
    buffer.check_valid()
    rows = [buffer.get_episode(i).row for i in range(7)]
    assert sorted(rows) == [0, 0, 0, 0, 1, 1, 1]
    episode = buffer.get_episode(0)
    assert episode.row == 0
    assert episode.obs[:, 0].tolist() == [0, 1, 2, 3]
    assert episode.action.tolist() == [0, 1, 2]
    assert episode.truncated.tolist() == [False, False, True]
    assert episode.extras["h"][:, 0].tolist() == [0, 2, 4]


def test_oldest_is_dropped_and_clear_forgets() -> None:
    buffer = EpisodeBuffer(2)
    count_up(buffer, 11, (3,))
    assert len(buffer) == 2
    assert all(len(episode) == 3 for episode in buffer.sample(5, np.random.default_rng(0)))
    buffer.clear()
    assert len(buffer) == 0
    with pytest.raises(UsageError, match="episode -1 is not there"):
        buffer.get_episode()
    with pytest.raises(UsageError, match="no game has finished"):
        buffer.sample(1, np.random.default_rng(0))
    count_up(buffer, 3, (3,))
    assert len(buffer.get_episode()) == 3  # nothing of the game that was cleared


def test_bad_use_is_named() -> None:
    with pytest.raises(UsageError, match="capacity_episodes is 0"):
        EpisodeBuffer(0)
    with pytest.raises(UsageError, match="the step has 2 rows: must be 1"):
        count_up(EpisodeBuffer(3), 1, (3, 3))
