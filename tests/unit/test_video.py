"""Videos play, hold every frame, and appear whole or not at all."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest

from retrograd.core.errors import RetrogradError, UsageError
from retrograd.core.protocols import Agent
from retrograd.core.types import ArraySpec, Decision, DiscreteActions, EnvSpec, EnvStep, Episode, Update
from retrograd.training.video import enlargement, record_episode
from retrograd.training.watch import _Pace, watch


class Movie:
    """A one-row environment whose game lasts ``length`` steps and shows two pictures per step."""

    fps = 30

    def __init__(self, length: int, shape: tuple[int, int] = (21, 33), pictures: int = 2, num_envs: int = 1) -> None:
        self.num_envs = num_envs
        self.spec = EnvSpec("movie", ArraySpec((1,), np.dtype(np.float32)), DiscreteActions(2))
        self._length, self._shape, self._pictures = length, shape, pictures
        self._age = 0
        self._waiting: list[np.ndarray] = []
        self.most_waiting = 0
        self._draw(1 if pictures else 0)

    def _draw(self, count: int) -> None:
        self._waiting += [np.full((*self._shape, 3), 10 * self._age % 256, np.uint8) for _ in range(count)]
        self.most_waiting = max(self.most_waiting, len(self._waiting))

    def pop_frames(self) -> list[np.ndarray]:
        frames, self._waiting = self._waiting, []
        return frames

    def observe(self) -> np.ndarray:
        return np.zeros((1, 1), np.float32)

    def send(self, action: np.ndarray) -> None:
        self._age += 1
        self._draw(self._pictures)

    def recv(self) -> EnvStep:
        ended = np.array([self._age % self._length == 0])
        episodes = (Episode(0, 7.5, self._length, self._length),) if ended[0] else ()
        obs = self.observe()
        return EnvStep(obs, obs, np.zeros(1), ended, np.zeros(1, bool), ended, episodes)

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        pass

    def close(self) -> None:
        pass


class Idle(Agent):
    def __init__(self) -> None:
        self.parts = {}

    def act(self, obs: Any, state: Any = None, *, step: int, explore: bool) -> Decision:
        return Decision(np.zeros(len(obs), np.int64))

    def update(self, batch: Any, *, step: int) -> Update:
        raise NotImplementedError


def size_of(path: Path) -> tuple[int, int]:
    reader = imageio_ffmpeg.read_frames(str(path))
    size: tuple[int, int] = next(reader)["size"]
    reader.close()
    return size


def test_every_frame_is_in_the_video_and_it_plays_at_its_speed(tmp_path: Path) -> None:
    """REQ RUN-8."""
    path = tmp_path / "videos" / "game.mp4"
    movie = Movie(22)
    info = record_episode(Idle(), movie, path, step=0)
    assert (info.frames, info.fps, info.score) == (45, 30, 7.5)
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(path))
    assert frames == 45
    assert seconds == pytest.approx(1.5, abs=0.05)
    assert size_of(path) == (100, 64)  # three times 33 × 21, made even
    assert movie.most_waiting <= 2  # frames were taken as they came
    assert os.listdir(path.parent) == ["game.mp4"]


def test_long_game_is_cut_without_a_score(tmp_path: Path) -> None:
    info = record_episode(Idle(), Movie(10_000), tmp_path / "cut.mp4", step=0, max_frames=12)
    assert (info.frames, info.score) == (12, None)
    assert imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "cut.mp4"))[0] == 12


@pytest.mark.parametrize(("height", "times"), [(84, 3), (210, 3), (250, 2), (400, 1), (1000, 1)])
def test_small_pictures_are_enlarged(height: int, times: int) -> None:
    assert enlargement(height) == times


def test_failure_leaves_the_old_video_and_no_litter(tmp_path: Path) -> None:
    class Broken(Idle):
        def act(self, obs: Any, state: Any = None, *, step: int, explore: bool) -> Decision:
            raise RuntimeError("the agent broke")

    path = tmp_path / "game.mp4"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="the agent broke"):
        record_episode(Broken(), Movie(5), path, step=0)
    with pytest.raises(RetrogradError, match="no pictures"):
        record_episode(Idle(), Movie(5, pictures=0), path, step=0)
    assert os.listdir(tmp_path) == ["game.mp4"]
    assert path.read_bytes() == b"old"


def test_encoder_that_did_not_finish_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(path: str, *_: Any, **__: Any) -> Any:
        Path(path).write_bytes(b"\0" * 48)
        while True:
            yield

    monkeypatch.setattr(imageio_ffmpeg, "write_frames", dies)
    with pytest.raises(RetrogradError, match="did not finish"):
        record_episode(Idle(), Movie(3), tmp_path / "game.mp4", step=0)
    assert os.listdir(tmp_path) == []


def test_viewer_with_several_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="2 rows"):
        record_episode(Idle(), Movie(3, num_envs=2), tmp_path / "game.mp4", step=0)


def test_watching_in_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(Movie, "fps", 1000)
    info = watch(Idle(), Movie(4), step=0, episodes=2, video=tmp_path / "game.mp4")
    assert info.scores == (7.5, 7.5)
    assert info.video is None
    assert os.listdir(tmp_path) == []


def test_closing_the_window_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setattr(pygame.event, "get", lambda: [pygame.event.Event(pygame.KEYDOWN, key=pygame.K_q)])
    assert watch(Idle(), Movie(10_000), step=0, video=tmp_path / "game.mp4").scores == ()


@pytest.mark.parametrize("reason", ["no display", "no window without pygame"])
def test_without_a_window_a_video_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    for name in ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    if reason != "no display":
        monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
        monkeypatch.setitem(sys.modules, "pygame", None)
    monkeypatch.setattr(sys, "platform", "linux")
    with caplog.at_level(logging.WARNING):
        info = watch(Idle(), Movie(4), step=0, video=tmp_path / "game.mp4")
    assert reason in caplog.text
    assert info.video == tmp_path / "game.mp4"
    assert info.scores == (7.5,)
    assert imageio_ffmpeg.count_frames_and_secs(str(info.video))[0] == 9


def test_pace_does_not_hurry_after_a_slow_moment() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))
        now[0] += seconds

    pace = _Pace(10, lambda: now[0], sleep)
    pace.wait()
    now[0] += 5.0  # the agent thought for long
    pace.wait()
    pace.wait()
    assert slept == [0.1, 0.1]
