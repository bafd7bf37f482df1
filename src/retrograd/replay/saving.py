"""Replay contents on disk: segments that are only ever appended, so that a later save costs what is new.

A folder holds an index, the segments it names and one small file with what changes all the time (priorities, random
state). The index is written last and at once: whenever the process dies, the folder has a complete save. The save
before the newest stays loadable, for a checkpoint that was not finished when its replay already was. Nothing is
pickled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from retrograd.core import disk
from retrograd.core.errors import CheckpointError
from retrograd.core.types import Array
from retrograd.replay.buffer import Replay
from retrograd.replay.packing import pack, unpack
from retrograd.replay.ring import Ring

VERSION = 1
OWN_FILE = re.compile(r"(?:segment|light|index)-(\d{6})\.(?:zst|json|json\.tmp)")
CHUNK_BYTES = 16 << 20  # so much is held in memory twice while a segment is written or read


class ReplaySaver:
    """Saves one replay to one folder again and again. Continues the segments it wrote or loaded itself; whatever else
    lies in the folder is replaced."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._index: dict[str, Any] | None = None

    def save(self, replay: Replay[Any]) -> str:
        """Bring the folder up to date; the name by which ``load`` finds this very save."""
        disk.make_folders(self.folder)
        ring, number, before = replay.storage, self._next_number(), self._index
        segments = self._append_segment(replay, f"segment-{number:06d}.zst")
        light = f"light-{number:06d}.zst"
        light_bytes = self._write(light, [pack({"replay": replay.light_state(), "live": _live_frames(ring)})])
        name = f"index-{number:06d}.json"
        index = {
            "version": VERSION,
            "name": name,
            "layout": ring.layout(),
            "saved": ring.head.tolist(),
            "live": ring.live.tolist(),
            "segments": segments,
            "light": {"file": light, "bytes": light_bytes},
        }
        self._replace(name, json.dumps(index, indent=1).encode())
        self._index = index  # only now: after a failed save the one before must stay what later ones keep
        self._drop_unnamed([index] if before is None else [before, index])
        return name

    def _append_segment(self, replay: Replay[Any], name: str) -> list[dict[str, Any]]:
        """Write what no segment holds yet; the segments that are still needed."""
        ring = replay.storage
        index = self._index or {"segments": [], "saved": [0] * ring.num_envs}
        oldest = ring.oldest().tolist()
        segments = [s for s in index["segments"] if any(end > oldest[row] for row, _, end in s["ranges"])]
        ranges = []
        for row, (saved, head) in enumerate(zip(index["saved"], ring.head.tolist(), strict=True)):
            first = max(saved, oldest[row])
            if head > first:
                ranges.append((row, first, head))
        if ranges:
            size = self._write(name, (chunk for one in ranges for chunk in _chunks(ring, *one)))
            segments.append({"file": name, "bytes": size, "ranges": ranges})
        return segments

    def load(self, replay: Replay[Any], name: str | None = None) -> None:
        """Fill a replay of the same layout; from then on it gives the samples the saved one would have given.
        ``name`` is what ``save`` returned; without it the newest save is taken."""
        index = self._read_index(name)
        ring = replay.storage
        ring.check_layout(index["layout"])
        ring.head[:] = index["saved"]
        ring.live[:] = index["live"]
        oldest = ring.oldest().tolist()
        loaded = list(oldest)
        for segment in index["segments"]:
            for payload in self._read(segment["file"], segment["bytes"]):
                part = self._unpack(segment["file"], payload)
                row, first, end = int(part["row"]), int(part["first"]), int(part["end"])
                skipped = max(oldest[row] - first, 0)
                if first + skipped >= end:
                    continue
                if first + skipped != loaded[row]:
                    raise CheckpointError(f"{self.folder / segment['file']}: row {row} goes on at {first}, "
                                          f"not at {loaded[row]}")  # fmt: skip
                frames = {key: array[skipped:] for key, array in part["frames"].items()}
                fields = {key: array[skipped:] for key, array in part["fields"].items()}
                ring.load_range(row, first + skipped, frames, fields)
                loaded[row] = end
        if loaded != ring.head.tolist():
            raise CheckpointError(f"{self.folder / index['name']}: the segments do not reach every row's last step")
        self._load_light(replay, index["light"])
        self._index = index

    def _load_light(self, replay: Replay[Any], entry: dict[str, Any]) -> None:
        ring = replay.storage
        light = self._unpack(entry["file"], b"".join(self._read(entry["file"], entry["bytes"])))
        for part in light["live"]:
            row = int(part["row"])
            slot = ring.slot(row, ring.head[row : row + 1])
            ring.flags[slot] = 0
            ring.since[slot] = part["since"]
            ring.write_frames(row, int(ring.head[row]), part["frames"])
        replay.load_light_state(light["replay"])

    def _next_number(self) -> int:
        return max((number for _, number in self._own_files()), default=0) + 1

    def _own_files(self) -> list[tuple[Path, int]]:
        matches = [(path, OWN_FILE.fullmatch(path.name)) for path in self.folder.iterdir()]
        return [(path, int(match[1])) for path, match in matches if match]

    def _write(self, name: str, payloads: Iterable[bytes]) -> int:
        """Each payload becomes a checked frame with its length before it; the file's size."""
        compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
        path = self.folder / name
        with disk.system.create(path) as file:
            for payload in payloads:
                data = compressor.compress(payload)
                file.write(len(data).to_bytes(8, "little"))
                file.write(data)
            disk.system.sync(file)
            return file.tell()

    def _read(self, name: str, size: int) -> Iterator[bytes]:
        path = self.folder / name
        if not path.exists():
            raise CheckpointError(f"{path}: the file is missing")
        if path.stat().st_size != size:
            raise CheckpointError(f"{path}: has {path.stat().st_size} bytes, not {size}")
        decompressor = zstandard.ZstdDecompressor()
        with path.open("rb") as file:
            while length := file.read(8):
                data = file.read(int.from_bytes(length, "little"))
                try:
                    yield decompressor.decompress(data)
                except (zstandard.ZstdError, MemoryError) as error:
                    raise CheckpointError(f"{path}: the contents are damaged ({error})") from error

    def _unpack(self, name: str, payload: bytes) -> Any:
        try:
            return unpack(payload)
        except (ValueError, KeyError) as error:
            raise CheckpointError(f"{self.folder / name}: the contents are damaged ({error})") from error

    def _read_index(self, name: str | None) -> dict[str, Any]:
        newest = max(self.folder.glob("index-*.json"), default=self.folder / "index.json")
        path = newest if name is None else self.folder / name
        try:
            index: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError as error:
            raise CheckpointError(f"{path}: there is no saved replay") from error
        except ValueError as error:
            raise CheckpointError(f"{path}: is not readable ({error})") from error
        if index.get("version") != VERSION:
            raise CheckpointError(f"{path}: has the version {index.get('version')}, this program reads {VERSION}")
        return index

    def _replace(self, name: str, data: bytes) -> None:
        temporary = self.folder / f"{name}.tmp"
        with disk.system.create(temporary) as file:
            file.write(data)
            disk.system.sync(file)
        # the segments' names first: an index must never name what a power cut can still take away
        disk.sync_folder(self.folder)
        disk.system.replace(temporary, self.folder / name)
        disk.sync_folder(self.folder)

    def _drop_unnamed(self, kept: list[dict[str, Any]]) -> None:
        named = {index["name"] for index in kept} | {index["light"]["file"] for index in kept}
        named |= {segment["file"] for index in kept for segment in index["segments"]}
        for path, _ in self._own_files():
            if path.name not in named:
                disk.remove_file(path)


def _live_frames(ring: Ring) -> list[dict[str, Any]]:
    """The observations that the next steps start from: no segment holds them, as their slots are not final yet."""
    live = []
    for row in np.flatnonzero(ring.live).tolist():
        head = int(ring.head[row])
        since = int(ring.since[ring.slot(row, np.array(head))])
        live.append({"row": row, "frames": ring.read_frames(row, head, head + 1), "since": since})
    return live


def _chunks(ring: Ring, row: int, first: int, end: int) -> Iterator[bytes]:
    sizes = [np.dtype(spec.dtype).itemsize * int(np.prod(ring.frame_shape(k))) for k, spec in ring.obs_specs.items()]
    sizes += [field[0].nbytes for field in ring.fields().values()]
    length = max(CHUNK_BYTES // sum(sizes), 1)
    for start in range(first, end, length):
        stop = min(start + length, end)
        slot: Array = ring.slot(row, np.arange(start, stop))
        fields = {name: field[slot] for name, field in ring.fields().items()}
        frames = ring.read_frames(row, start, stop)
        yield pack({"row": row, "first": start, "end": stop, "frames": frames, "fields": fields})
