"""One game as an MP4, streamed frame by frame into the encoder."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import imageio_ffmpeg
import numpy as np

from retrograd.core.errors import RetrogradError, Stopped, UsageError
from retrograd.core.protocols import Agent, VecEnv
from retrograd.core.types import Array, Episode
from retrograd.training import durable

TALLEST_UPSCALED_PIXELS = 640


class Viewer(VecEnv, Protocol):
    """One row that keeps the pictures a human would see."""

    @property
    def fps(self) -> float: ...
    def pop_frames(self) -> Sequence[Array]: ...  # [H, W, 3] uint8 each, since the last call


@dataclass(frozen=True, slots=True)
class VideoInfo:
    frames: int
    fps: float
    score: float | None  # None where the video ended before the game


def record_episode(
    agent: Agent,
    viewer: Viewer,
    path: Path,
    *,
    step: int,
    explore: bool = False,
    max_frames: int = 18_000,
    stop: Callable[[], bool] = lambda: False,
) -> VideoInfo:
    """Play one game and save it as MP4 under ``path``, which holds a whole video or nothing new."""
    if max_frames < 1:
        raise UsageError(f"max_frames is {max_frames}: a video needs at least 1 frame")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".tmp-{path.stem}-{os.getpid()}.mp4")
    try:
        game = _until(stop, play_game(agent, viewer, step=step, explore=explore))
        info = _encode_game(game, viewer.fps, temporary, max_frames)
        _check_finished(temporary)
        durable.sync_file(temporary)
        durable.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return info


def _until(
    stop: Callable[[], bool], portions: Iterator[tuple[Sequence[Array], Episode | None]]
) -> Iterator[tuple[Sequence[Array], Episode | None]]:
    for portion in portions:
        if stop():
            raise Stopped
        yield portion


def _check_finished(path: Path) -> None:
    """An encoder that died at the end (a full disk) tells nobody; the index it moves to the front last does."""
    with open(path, "rb") as file:
        if b"moov" not in file.read(64):
            raise RetrogradError("no video: the encoder did not finish the file (is the disk full?)")


def play_game(
    agent: Agent, viewer: Viewer, *, step: int, explore: bool
) -> Iterator[tuple[Sequence[Array], Episode | None]]:
    """The pictures of one game, in the portions the viewer gives them; the last comes with the score."""
    if viewer.num_envs != 1:
        raise UsageError(f"the viewer has {viewer.num_envs} rows: a game is shown from exactly 1")
    state = agent.initial_state(1)
    yield viewer.pop_frames(), None
    while True:
        decision = agent.act(viewer.observe(), state, step=step, explore=explore)
        state = decision.state
        viewer.send(decision.action)
        answer = viewer.recv()
        yield viewer.pop_frames(), answer.episodes[0] if answer.episodes else None
        if answer.episodes:
            return


def enlargement(height: int) -> int:
    """How often small pictures are doubled up so that they are pleasant to watch: 1, 2 or 3 times."""
    return max(1, min(3, TALLEST_UPSCALED_PIXELS // height))


def _encode_game(
    portions: Iterator[tuple[Sequence[Array], Episode | None]], fps: float, path: Path, max_frames: int
) -> VideoInfo:
    frames = 0
    score: float | None = None
    first, episode = next(portions)
    while not len(first):  # the size of the video is the size of its first picture
        if episode is not None:
            raise RetrogradError("no video: the environment gave no pictures of the game")
        first, episode = next(portions)
    height, width = first[0].shape[:2]
    with _encoder(path, height, width, fps) as writer:
        portion: Sequence[Array] = first
        while True:
            for frame in portion[: max_frames - frames]:
                if frame.shape != (height, width, 3) or frame.dtype != np.uint8:
                    raise RetrogradError(
                        f"no video: a picture is {frame.dtype} {frame.shape}, expected uint8 {(height, width, 3)}"
                    )
                writer.send(np.ascontiguousarray(frame))
                frames += 1
            score = None if episode is None else episode.score
            if episode is not None or frames >= max_frames:
                return VideoInfo(frames, fps, score)
            portion, episode = next(portions)


def encode(path: Path, pictures: Iterable[Array], fps: float) -> int:
    """Pictures [H, W, 3] uint8 of one size as a new MP4; how many there were. For folders not yet published."""
    frames = iter(pictures)
    first = next(frames, None)
    if first is None:
        raise UsageError("a video needs at least 1 picture")
    height, width = first.shape[:2]
    count = 1
    with _encoder(path, height, width, fps) as writer:
        writer.send(np.ascontiguousarray(first))
        for frame in frames:
            if frame.shape != first.shape:
                raise RetrogradError(f"no video: a picture is {frame.shape}, the first one was {first.shape}")
            writer.send(np.ascontiguousarray(frame))
            count += 1
    _check_finished(path)
    durable.sync_file(path)
    return count


@contextmanager
def _encoder(path: Path, height: int, width: int, fps: float) -> Iterator[Generator[None, Array, None]]:
    scale = enlargement(height)
    # yuv420p halves both axes, so odd sizes get a black edge
    filters = f"scale={width * scale}:{height * scale}:flags=neighbor,pad=ceil(iw/2)*2:ceil(ih/2)*2"
    writer = imageio_ffmpeg.write_frames(
        str(path),
        (width, height),
        fps=fps,
        codec="libx264",
        quality=None,
        macro_block_size=1,
        ffmpeg_log_level="error",
        # the index goes to the front so that browsers play before all is loaded
        output_params=["-vf", filters, "-crf", "20", "-preset", "veryfast", "-movflags", "+faststart"],
    )
    writer.send(None)
    try:
        yield writer
    finally:
        writer.close()
