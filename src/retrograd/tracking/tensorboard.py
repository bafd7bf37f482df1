"""TensorBoard: event files in the run folder, ``tensorboard --logdir outputs`` shows them."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from retrograd.core.errors import missing_extra
from retrograd.tracking.series import named_numbers

GIF_FRAMES = 120  # of a video: the picture travels inside the event file
GIF_FPS = 15
GIF_WIDTH = 160


class TensorBoardSink:
    """Scalars under the names every tracker has, the config as text, videos as moving pictures.

    The files hold 32-bit floats. After a resume, ``purge_step`` hides what was written after the checkpoint, and all
    there is where the run begins again.
    """

    def __init__(self, folder: Path, *, config_yaml: str = "", about: Mapping[str, str] | None = None) -> None:
        check_installed()
        self.log_dir = folder / "tensorboard"
        self._texts = {"config": f"```yaml\n{config_yaml}\n```", **(about or {})}
        self._writer: Any = None
        self._last_step: int | None = None
        self._purge_step: int | None = None

    def write(self, table: str, row: Mapping[str, Any]) -> None:
        writer, step = self._open(), int(row["step"])
        for name, number in named_numbers(table, row).items():
            writer.add_scalar(name, number, step)
        if table == "eval":
            writer.add_text("eval/eval_type", str(row["eval_type"]), step)
        self._last_step = step

    def write_video(self, path: Path, *, step: int) -> None:
        from tensorboard.compat.proto.summary_pb2 import Summary

        gif, width, height = _as_gif(path)
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=gif)
        self._open().file_writer.add_summary(Summary(value=[Summary.Value(tag="video", image=image)]), step)

    def flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def state_dict(self) -> dict[str, Any]:
        return {"last_step": self._last_step}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self._last_step = state["last_step"]
        self._purge_step = 0 if self._last_step is None else self._last_step + 1

    def begin_again(self) -> None:
        self.load_state_dict({"last_step": None})

    def _open(self) -> Any:
        """The writer, made at the first row, when it is known whether the run was resumed."""
        if self._writer is None:
            from torch.utils.tensorboard import SummaryWriter

            # readers take the order of files from the second in their name: a resumed run must not share it
            while any(self.log_dir.glob(f"events.out.tfevents.{int(time.time())}.*")):
                time.sleep(0.05)
            self._writer = SummaryWriter(str(self.log_dir), purge_step=self._purge_step)
            if not self._purge_step:  # of a new run, or hidden with everything else
                for name, text in self._texts.items():
                    self._writer.add_text(name, text, 0)
        return self._writer


def check_installed() -> None:
    try:
        import tensorboard  # noqa: F401
    except ImportError:
        raise missing_extra("tensorboard.enabled=true", "tensorboard") from None


def _as_gif(path: Path) -> tuple[bytes, int, int]:
    """A short, small form of an MP4: evenly spaced pictures of the whole game."""
    import imageio_ffmpeg
    from PIL import Image

    frames = imageio_ffmpeg.count_frames_and_secs(str(path))[0]
    every = max(1, -(-frames // GIF_FRAMES))
    reader = imageio_ffmpeg.read_frames(str(path), bits_per_pixel=24)
    width, height = next(reader)["size"]
    small = (GIF_WIDTH, max(1, height * GIF_WIDTH // width))
    pictures: Sequence[Any] = [
        Image.frombytes("RGB", (width, height), frame).resize(small)
        for number, frame in enumerate(reader)
        if number % every == 0
    ]
    out = io.BytesIO()
    pictures[0].save(
        out, format="GIF", save_all=True, append_images=pictures[1:], duration=1000 // GIF_FPS, loop=0, optimize=False
    )
    return out.getvalue(), *small
