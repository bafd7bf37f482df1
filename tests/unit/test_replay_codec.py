"""Compressed frames come back as they were, and C and numpy write the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec
from retrograd.replay import CompressedStorage, gather
from retrograd.replay.codec import (
    decode_block_numpy,
    decode_frames,
    decode_frames_numpy,
    encode_block,
    encode_block_numpy,
)

needs_c = pytest.mark.skipif(not gather.KERNELS, reason="the extension is not built")


def make_block(seed: int, frames: int, lines: int, width: int, density: float) -> np.ndarray:
    """Frames that differ from each other in a share of their bytes, in runs of all lengths."""
    rng = np.random.default_rng(seed)
    changes = rng.integers(0, 256, (frames, lines, width)) * (rng.random((frames, lines, width)) < density)
    changes[rng.random(frames) < 0.2] = 0
    if frames > 1:
        changes[-1, lines // 2 :] = rng.integers(1, 256, (lines - lines // 2, width))
    return np.bitwise_xor.accumulate(changes.astype(np.uint8), axis=0)


blocks = st.tuples(
    st.integers(0, 2**20),
    st.integers(1, 9),
    st.integers(1, 12),
    st.integers(1, 90),
    st.sampled_from([0, 0.003, 0.1, 1]),
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(blocks)
def test_round_trip(case: tuple[int, int, int, int, float]) -> None:
    block = make_block(*case)
    code = encode_block_numpy(block, block.shape[2])
    assert np.array_equal(
        decode_block_numpy(code, len(block), block[0].size, block.shape[2]).reshape(block.shape), block
    )


@needs_c
@settings(max_examples=80, deadline=None, derandomize=True)
@given(blocks)
def test_c_writes_the_same_bytes(case: tuple[int, int, int, int, float]) -> None:
    block = make_block(*case)
    assert encode_block(block, block.shape[2]) == encode_block_numpy(block, block.shape[2])


@needs_c
@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 2**20))
def test_c_reads_the_same_frames(seed: int) -> None:
    """Any order of slots, zeros for negative ones, plain frames of open blocks."""
    rng = np.random.default_rng(seed)
    coded = [make_block(seed + i, 4, 5, 7, 0.2) for i in range(4)]
    parts: list[bytes | None] = [encode_block(block, 7) for block in coded]
    open_frames = np.stack([coded[1], coded[2]])
    parts[1] = parts[2] = None  # row 0 has blocks 0 and 1, row 1 has 2 and 3
    slot = rng.integers(-1, 16, size=(6, 3))
    ours, plain = np.empty((6, 3, 5, 7), np.uint8), np.empty((6, 3, 5, 7), np.uint8)
    decode_frames(parts, open_frames, slot, ours, 2, 7)
    decode_frames_numpy(parts, open_frames, slot, plain, 2, 7)
    wanted = np.where((slot < 0)[..., None, None], 0, np.concatenate(coded)[slot])
    assert np.array_equal(ours, wanted)
    assert np.array_equal(plain, wanted)


@needs_c
def test_broken_code_is_refused() -> None:
    code = encode_block(make_block(0, 4, 5, 7, 0.5), 7)
    out = np.empty((1, 5, 7), np.uint8)
    for broken in (code[: len(code) // 2], b"", b"\xff" * 40):
        with pytest.raises(ValueError, match="broken"):
            decode_frames([broken], np.zeros((1, 4, 5, 7), np.uint8), np.array([3]), out, 1, 7)


@needs_c
def test_gather_in_c_equals_numpy() -> None:
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (20, 3, 4)).astype(np.uint8)
    slot = rng.integers(-1, 20, (7, 5))
    ours, plain = np.empty((7, 5, 3, 4), np.uint8), np.empty((7, 5, 3, 4), np.uint8)
    gather.gather_frames(frames, slot, ours)
    gather.gather_frames_numpy(frames, slot, plain)
    assert np.array_equal(ours, plain)
    with pytest.raises(IndexError, match="slot 20"):
        gather.gather_frames(frames, np.array([20]), np.empty((1, 3, 4), np.uint8))


@pytest.mark.parametrize(
    ("obs", "stack"),
    [
        (ArraySpec((4, 8, 8), np.dtype(np.float32)), 4),
        (ArraySpec((4, 8, 8), np.dtype(np.uint8)), None),
        ({"a": ArraySpec((4, 8, 8), np.dtype(np.uint8))}, 4),
    ],
)
def test_only_stacked_bytes_are_compressed(obs: ArraySpec, stack: int | None) -> None:
    with pytest.raises(UsageError, match="compressed storage holds stacked uint8 frames"):
        CompressedStorage(EnvSpec("x", obs, DiscreteActions(2), stack), 100, 1)
