"""Lossless coding of short runs of frames by what differs between them.

A block's first frame is coded against the line above, every other frame against the one before it, both by XOR. What
remains is mostly zeros; it is kept as (skip, length) pairs of bytes and the literal bytes they point at, so that the
next frame of a run is made from the last by touching only the bytes that changed. The C extension does the same work;
this is its equal for machines without a compiler.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from retrograd.core.types import Array
from retrograd.replay.gather import KERNELS

GAP = 3  # shorter runs of zeros cost less as literals than as another pair
MOST = 255


def encode_block(block: Array, line_bytes: int) -> bytes:
    """Code the frames of ``block`` [K, ...] uint8."""
    if KERNELS is None:
        return encode_block_numpy(block, line_bytes)
    code: bytes = KERNELS.encode(block, block[0].size, line_bytes)
    return code


def encode_block_numpy(block: Array, line_bytes: int) -> bytes:
    frames = block.reshape(len(block), -1)
    rest = frames.copy()
    rest[1:] ^= frames[:-1]
    rest[0, line_bytes:] ^= frames[0, :-line_bytes]
    return b"".join(_encode_frame(frame) for frame in rest)


def _encode_frame(rest: Array) -> bytes:
    changed = np.flatnonzero(rest)
    if len(changed) == 0:
        return np.uint32(0).tobytes()
    breaks = np.flatnonzero(np.diff(changed) > GAP)
    start = changed[np.r_[0, breaks + 1]]
    end = changed[np.r_[breaks, len(changed) - 1]] + 1
    skip, length = start - np.r_[0, end[:-1]], end - start
    before, after = np.maximum(skip - 1, 0) // MOST, (length - 1) // MOST  # pairs beyond the one each run needs
    last = np.cumsum(before + 1 + after) - 1  # the pair that ends each run
    main = last - after
    skips = np.zeros(last[-1] + 1, np.uint8)
    lengths = np.zeros(last[-1] + 1, np.uint8)
    skips[_spans(main - before, before)] = MOST
    skips[main] = skip - before * MOST
    lengths[_spans(main, after)] = MOST
    lengths[last] = length - after * MOST
    literals = rest[_spans(start, length)]
    return b"".join((np.uint32(len(skips)).tobytes(), skips.tobytes(), lengths.tobytes(), literals.tobytes()))


def _spans(start: Array, length: Array) -> Array:
    """start[0] … start[0] + length[0] - 1, start[1] …, as one array."""
    offset = np.cumsum(length) - length
    return np.repeat(start - offset, length) + np.arange(int(length.sum()))


def decode_block_numpy(code: bytes, frames: int, frame_bytes: int, line_bytes: int) -> Array:
    """[frames, frame_bytes] uint8: the first frames of a coded block."""
    out = np.zeros((frames, frame_bytes), np.uint8)
    at = 0
    for frame in out:
        tokens = int(np.frombuffer(code, np.uint32, 1, at)[0])
        skips = np.frombuffer(code, np.uint8, tokens, at + 4).astype(np.int64)
        lengths = np.frombuffer(code, np.uint8, tokens, at + 4 + tokens).astype(np.int64)
        total = int(lengths.sum())
        literals = np.frombuffer(code, np.uint8, total, at + 4 + 2 * tokens)
        frame[_spans(np.cumsum(skips + lengths) - lengths, lengths)] = literals
        at += 4 + 2 * tokens + total
    lines = out[0].reshape(-1, line_bytes)
    np.bitwise_xor.accumulate(lines, axis=0, out=lines)
    np.bitwise_xor.accumulate(out, axis=0, out=out)
    return out


def decode_frames(
    blocks: list[bytes | None], open_frames: Array, slot: Array, out: Array, blocks_per_row: int, line_bytes: int
) -> None:
    """Copy the frames of ``slot`` into ``out``; None among the blocks is one still open, whose frames lie in
    ``open_frames`` [N, K, ...] as they are. Negative slots give zeros."""
    block_frames = open_frames.shape[1]
    if KERNELS is None or not out.flags.c_contiguous:
        decode_frames_numpy(blocks, open_frames, slot, out, blocks_per_row, line_bytes)
    else:
        slot = np.ascontiguousarray(slot, np.int64)
        KERNELS.decode(blocks, open_frames, slot, out, block_frames, blocks_per_row, line_bytes)


def decode_frames_numpy(
    blocks: Sequence[bytes | None], open_frames: Array, slot: Array, out: Array, blocks_per_row: int, line_bytes: int
) -> None:
    block_frames = open_frames.shape[1]
    wanted = slot.reshape(-1)
    flat = out.reshape(len(wanted), -1)
    flat[wanted < 0] = 0
    block = np.where(wanted < 0, -1, wanted // block_frames)
    for number in np.unique(block[block >= 0]).tolist():
        here = np.flatnonzero(block == number)
        offset = wanted[here] % block_frames
        code = blocks[number]
        if code is None:
            frames = open_frames[number // blocks_per_row].reshape(block_frames, -1)
        else:
            frames = decode_block_numpy(code, int(offset.max()) + 1, flat.shape[1], line_bytes)
        flat[here] = frames[offset]
