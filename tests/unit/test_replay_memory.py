"""Memory: known beforehand, and no more than one frame a transition."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec, ContinuousActions, DiscreteActions, EnvSpec, Step
from retrograd.replay import CompressedStorage, NStep, Prioritized, RawStorage, Replay, bytes_needed, check_memory

ATARI = EnvSpec("atari", ArraySpec((4, 84, 84), np.dtype(np.uint8)), DiscreteActions(18), 4, 4)


def test_a_million_atari_transitions_take_one_frame_each() -> None:
    """REQ REPLAY-1."""
    assert bytes_needed(ATARI, 1_000_000) < 7.1e9
    assert bytes_needed(ATARI, 1_000_000, 8, prioritized=True) / 1e6 < 7200


def test_forecast_equals_what_is_allocated() -> None:
    box = ContinuousActions(np.zeros(3), np.ones(3))
    spec = EnvSpec("box", {"a": ArraySpec((5,), np.dtype(np.float32)), "b": ArraySpec((), np.dtype(np.int64))}, box)
    extras = {"h": ArraySpec((2,), np.dtype(np.float32))}
    storage = RawStorage(spec, 1000, 4, extras=extras)
    replay = Replay(storage, Prioritized(), NStep(), np.random.default_rng(0))
    allocated = sum(array.nbytes for array in storage.frames.values()) + storage.field_bytes()
    allocated += replay.starts.valid.nbytes + replay.sampler.tree.nodes.nbytes
    assert bytes_needed(spec, 1000, 4, prioritized=True, extras=extras) == allocated


def test_forecast_needs_no_torch() -> None:
    code = "import sys; from retrograd.replay.memory import bytes_needed; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_compressed_frames_take_a_fraction() -> None:
    """REQ REPLAY-2: a ball and a paddle on a plain ground, moving; the bytes reported are those held."""
    storage = CompressedStorage(ATARI, 600, 1)
    rng = np.random.default_rng(0)
    obs = np.zeros((1, 4, 84, 84), np.uint8)
    for t in range(600):
        frame = np.full((84, 84), 87, np.uint8)
        frame[(t * 3) % 80 : (t * 3) % 80 + 4, (t * 2) % 80 : (t * 2) % 80 + 2] = 236
        frame[rng.integers(60) : 70, 75:78] = 147
        following = np.concatenate([obs[:, 1:], frame[None, None]], axis=1)
        off = np.zeros(1, bool)
        storage.add(Step(obs, np.zeros(1, int), np.zeros(1, np.float32), off, off, off, following))
        obs = following
    assert storage.frame_bytes() - storage._open.nbytes < 600 * 1200
    coded = [code for code in storage._blocks if code is not None]
    assert storage._coded_bytes == sum(sys.getsizeof(code) + 8 for code in coded)


def test_too_little_memory_is_refused() -> None:
    check_memory(8_000, available=10_000)
    with pytest.raises(UsageError, match=r"needs 20\.0 GB, but only 9\.0 GB are free"):
        check_memory(20 * 10**9, available=10 * 10**9)


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="capacity is 3"):
        RawStorage(ATARI, 3, 4)
    with pytest.raises(UsageError, match="num_envs is 0"):
        RawStorage(ATARI, 3, 0)
    with pytest.raises(UsageError, match="frame_stack is 4, but"):
        RawStorage(EnvSpec("x", ArraySpec((3, 8, 8), np.dtype(np.uint8)), DiscreteActions(2), 4), 100, 1)
    with pytest.raises(UsageError, match="windows of 50 steps need at least"):
        Replay(RawStorage(ATARI, 40, 1), Prioritized(), NStep(50), np.random.default_rng(0))
    with pytest.raises(UsageError, match="n_steps is 0"):
        NStep(0)
    with pytest.raises(UsageError, match=r"gamma is 1\.1"):
        NStep(1, 1.1)


def test_ill_shaped_steps_are_refused() -> None:
    spec = EnvSpec("line", ArraySpec((2,), np.dtype(np.float32)), DiscreteActions(2))
    storage = RawStorage(spec, 10, 2, extras={"value": ArraySpec((), np.dtype(np.float32))})
    good, off = np.zeros((2, 2), np.float32), np.zeros(2, bool)
    reward, action = np.zeros(2, np.float32), np.zeros(2, int)
    with pytest.raises(UsageError, match=r"next_obs has the shape \(2, 3\): must be \(2, 2\)"):
        storage.add(Step(good, action, reward, off, off, off, np.zeros((2, 3)), {"value": reward}))
    with pytest.raises(UsageError, match=r"action has the shape \(3,\)"):
        storage.add(Step(good, np.zeros(3, int), reward, off, off, off, good, {"value": reward}))
    with pytest.raises(UsageError, match=r"lack 'value'.*Did you mean 'values'"):
        storage.add(Step(good, action, reward, off, off, off, good, {"values": reward}))
    with pytest.raises(UsageError, match="parts"):
        storage.add(Step({"a": good}, action, reward, off, off, off, good, {"value": reward}))
