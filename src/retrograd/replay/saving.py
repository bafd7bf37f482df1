"""Replay contents on disk: segments that are only ever appended, so that a later save costs what is new.

A save has two halves. ``prepare`` copies what changes all the time; the function it returns does the disk work, in
another thread if need be: steps that are already stored change no more until the ring comes round to them, so they
are read while the training goes on, oldest first, and those that would soon be overwritten are copied before.

A folder holds an index, the segments it names and one small file with what changes all the time (priorities, random
state). The index is written last and at once: whenever the process dies, the folder has a complete save. The save
before the newest stays loadable, for a checkpoint that was not finished when its replay already was. Nothing is
pickled.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, zip_longest
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
LARGEST_BYTES = 1 << 30  # of one part of a file, unpacked: more is no save of ours
CHUNK_BYTES = 16 << 20  # so much is held in memory twice while a segment is written or read
LEAD_BYTES = 64 << 20  # so much of a full ring is copied at once, as a head start before it is overwritten

Span = tuple[int, int, int]  # row, first, end


class ReplaySaver:
    """Saves one replay to one folder again and again. Continues the segments it wrote or loaded itself; whatever else
    lies in the folder is replaced."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self._index: dict[str, Any] | None = None

    def save(self, replay: Replay[Any]) -> str:
        """Bring the folder up to date; the name by which ``load`` finds this very save."""
        before = self._index
        name: str = self.prepare(replay)()["index"]
        assert self._index is not None
        self._drop_unnamed([self._index] if before is None else [before, self._index])
        return name

    def prepare(self, replay: Replay[Any]) -> Callable[[], dict[str, Any]]:
        """Copy what the training is about to change; the function returned writes the save and removes nothing.

        It returns ``index``, the name for ``load``, and ``files``: size and SHA-256 of all that the save is made of.
        """
        ring, known = replay.storage, self._index or {"segments": [], "saved": [0] * replay.storage.num_envs}
        oldest, head = ring.oldest().tolist(), ring.head.tolist()
        segments = [s for s in known["segments"] if any(end > oldest[row] for row, _, end in s["ranges"])]
        starts = [max(saved, first) for saved, first in zip(known["saved"], oldest, strict=True)]
        ranges = [(row, first, end) for row, (first, end) in enumerate(zip(starts, head, strict=True)) if end > first]
        chunks = _read_ahead(ring, ranges)
        light = pack({"replay": replay.light_state(), "live": _live_frames(ring)})
        index = {
            "version": VERSION,
            "layout": ring.layout(),
            "saved": head,
            "live": ring.live.tolist(),
            "oldest": oldest,
        }
        return lambda: self._write_save(index, segments, ranges, chunks, light)

    def _write_save(
        self,
        index: dict[str, Any],
        segments: list[dict[str, Any]],
        ranges: list[Span],
        chunks: Iterator[bytes],
        light: bytes,
    ) -> dict[str, Any]:
        disk.make_folders(self.folder)
        number = self._next_number()
        name = f"index-{number:06d}.json"
        try:
            if ranges:
                segment = self._write(f"segment-{number:06d}.zst", chunks)
                segments = [*segments, segment | {"ranges": ranges}]
            complete = index | {
                "name": name,
                "segments": segments,
                "light": self._write(f"light-{number:06d}.zst", [light]),
            }
            data = json.dumps(complete, indent=1).encode()
            self._replace(name, data)
        except BaseException:
            self._remove_save(number)
            raise
        self._index = complete  # only now: after a failed save the one before must stay what later ones keep
        parts = [*segments, complete["light"]]
        files = {part["file"]: {"bytes": part["bytes"], "sha256": part["sha256"]} for part in parts}
        return {
            "index": name,
            "files": files | {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}},
        }

    def keep_only(self, names: set[str]) -> None:
        """Remove every file of ours that is not among ``names``."""
        for path, _ in self._own_files() if self.folder.is_dir() else ():
            if path.name not in names:
                disk.remove_file(path)

    def _remove_save(self, number: int) -> None:
        """All that a failed save has written: a disk that was full needs the room for the next try."""
        with suppress(OSError):
            for path, of_save in sorted(self._own_files()):  # the index first: it must not name what is gone
                if of_save == number:
                    disk.remove_file(path)

    def load(self, replay: Replay[Any], name: str | None = None) -> None:
        """Fill a replay of the same layout; from then on it gives the samples the saved one would have given.
        ``name`` is what ``save`` returned; without it the newest save is taken."""
        index = self._read_index(name)
        try:
            self._fill(replay, index)
        # a hostile file may say anything at all
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
            raise CheckpointError(f"{self.folder / index['name']}: is not what a save says ({error!r})") from error
        self._index = index

    def _fill(self, replay: Replay[Any], index: dict[str, Any]) -> None:
        ring = replay.storage
        ring.check_layout(index["layout"])
        ring.go_on_at(index["saved"], index["live"])
        for row, first, frames, fields in self._stored(index, ring.oldest().tolist()):
            ring.load_range(row, first, frames, fields)
        self._load_light(replay, index["light"])

    def contents(self, name: str) -> tuple[Iterator[tuple[int, int, dict[str, Array], dict[str, Array]]], Any]:
        """A save without a replay to load it into: runs of (row, first position, frames, fields), and the rest."""
        index = self._read_index(name)
        entry = index["light"]
        light = self._unpack(entry["file"], b"".join(self._read(entry["file"], entry["bytes"])))
        return self._stored(index, index["oldest"]), light

    def _stored(
        self, index: dict[str, Any], oldest: list[int]
    ) -> Iterator[tuple[int, int, dict[str, Array], dict[str, Array]]]:
        """The steps that can still be read, row by row without a gap."""
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
                yield row, first + skipped, frames, fields
                loaded[row] = end
        if loaded != index["saved"]:
            raise CheckpointError(f"{self.folder / index['name']}: the segments do not reach every row's last step")

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

    def _write(self, name: str, payloads: Iterable[bytes]) -> dict[str, Any]:
        """Each payload becomes a checked frame with its length before it; the file's entry in the index."""
        compressor = zstandard.ZstdCompressor(level=1, write_checksum=True)
        digest = hashlib.sha256()
        with disk.system.create(self.folder / name) as file:
            for payload in payloads:
                data = compressor.compress(payload)
                for piece in (len(data).to_bytes(8, "little"), data):
                    file.write(piece)
                    digest.update(piece)
            disk.system.sync(file)
            return {"file": name, "bytes": file.tell(), "sha256": digest.hexdigest()}

    def _read(self, name: str, size: int) -> Iterator[bytes]:
        path = self.folder / name
        if not OWN_FILE.fullmatch(name) or path.is_symlink() or (path.exists() and not path.is_file()):
            raise CheckpointError(f"{path}: is not a file of a saved replay")
        if not path.exists():
            raise CheckpointError(f"{path}: the file is missing")
        if path.stat().st_size != size:
            raise CheckpointError(f"{path}: has {path.stat().st_size} bytes, not {size}")
        decompressor = zstandard.ZstdDecompressor()
        with path.open("rb") as file:
            while length := file.read(8):
                data = file.read(min(int.from_bytes(length, "little"), size))
                try:
                    if zstandard.frame_content_size(data) > LARGEST_BYTES:
                        raise CheckpointError(f"{path}: a part of it would fill more than {LARGEST_BYTES} bytes")
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
            index: Any = json.loads(path.read_text())
        except FileNotFoundError as error:
            raise CheckpointError(f"{path}: there is no saved replay") from error
        except (OSError, ValueError, RecursionError) as error:
            raise CheckpointError(f"{path}: is not readable ({error})") from error
        if not isinstance(index, dict) or index.get("version") != VERSION:
            version = index.get("version") if isinstance(index, dict) else None
            raise CheckpointError(f"{path}: has the version {version}, this program reads {VERSION}")
        return {**index, "name": path.name}

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
        self.keep_only(named)


def _live_frames(ring: Ring) -> list[dict[str, Any]]:
    """The observations that the next steps start from: no segment holds them, as their slots are not final yet."""
    live = []
    for row in np.flatnonzero(ring.live).tolist():
        head = int(ring.head[row])
        since = int(ring.since[ring.slot(row, np.array(head))])
        live.append({"row": row, "frames": ring.read_frames(row, head, head + 1), "since": since})
    return live


def _read_ahead(ring: Ring, ranges: list[Span]) -> Iterator[bytes]:
    """The packed steps of ``ranges``: those about to change are copied now, the others when they are asked for."""
    lead = max(LEAD_BYTES // (_slot_bytes(ring) * ring.num_envs), 4 * ring.block_slots)
    doomed = _oldest_after(ring, lead)  # what is before will be overwritten within ``lead`` steps
    begin, middle, end = [], [], []
    for row, first, head in ranges:
        early = min(max(doomed[row], first), head)
        late = min(max(head - 2 * ring.block_slots, early), head)  # the block still open is written in place
        begin.append((row, first, early))
        middle.append((row, early, late))
        end.append((row, late, head))
    copied = [_pack_span(ring, span) for span in _split(ring, begin)]
    tail = [_pack_span(ring, span) for span in _split(ring, end)]
    return chain(copied, _read_later(ring, middle), tail)


def _read_later(ring: Ring, ranges: list[Span]) -> Iterator[bytes]:
    for span in _split(ring, ranges):
        data = _pack_span(ring, span)
        if _oldest_after(ring, ring.stack + 2)[span[0]] > span[1]:
            raise CheckpointError("the replay was overwritten while it was being saved: the disk is too slow for it")
        yield data


def _split(ring: Ring, ranges: list[Span]) -> Iterator[Span]:
    """Spans of at most ``CHUNK_BYTES``, all rows in turn: the oldest steps of each are in the greatest hurry."""
    length = max(CHUNK_BYTES // _slot_bytes(ring), 1)
    rows = [[(row, at, min(at + length, end)) for at in range(first, end, length)] for row, first, end in ranges]
    for spans in zip_longest(*rows):
        yield from (span for span in spans if span is not None)


def _oldest_after(ring: Ring, steps: int) -> list[int]:
    """The first position of every row that will still be there ``steps`` steps from now."""
    block = ring.block_slots
    end = -(-(ring.written + steps) // block) * block
    oldest: list[int] = np.maximum(end - ring.slots_per_row, 0).tolist()
    return oldest


def _slot_bytes(ring: Ring) -> int:
    frames = [np.dtype(spec.dtype).itemsize * int(np.prod(ring.frame_shape(k))) for k, spec in ring.obs_specs.items()]
    return sum(frames) + sum(int(field[0].nbytes) for field in ring.fields().values())


def _pack_span(ring: Ring, span: Span) -> bytes:
    row, first, end = span
    slot: Array = ring.slot(row, np.arange(first, end))
    fields = {name: field[slot] for name, field in ring.fields().items()}
    frames = ring.read_frames(row, first, end)
    return pack({"row": row, "first": first, "end": end, "frames": frames, "fields": fields})
