"""Writes that survive a power cut: the one door to the disk for everything a run must not lose.

A file or folder under its final name is always whole. Data reach the disk before the name does,
and the name reaches the disk before the call returns.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from retrograd.core import disk
from retrograd.core.disk import sync_folder

__all__ = [
    "create_file",
    "discard_folder",
    "encode_json",
    "encode_json_line",
    "publish_folder",
    "remove_folder",
    "removed_on_error",
    "rename",
    "replace_link",
    "sync_file",
    "sync_folder",
    "write_bytes",
    "write_json",
    "write_text",
]


def sync_file(path: Path) -> None:
    """Put the content of an existing file on the disk."""
    disk.system.sync_path(path)


@contextmanager
def create_file(path: Path) -> Iterator[BinaryIO]:
    """A new file that is on the disk when the block ends; for files of a folder not yet published."""
    with disk.system.create(path) as file:
        yield file
        disk.system.sync(file)


def rename(source: Path, target: Path) -> None:
    """Give a file that is already on the disk its final name, replacing what had it."""
    disk.system.replace(source, target)
    sync_folder(target.parent)


def write_bytes(path: Path, data: bytes) -> None:
    """Create or replace a file in one piece."""
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        disk.remove_file(temporary)
        with create_file(temporary) as file:
            file.write(data)
        rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            disk.remove_file(temporary)
        raise


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_json(path: Path, value: Any) -> None:
    write_bytes(path, encode_json(value))


def encode_json(value: Any) -> bytes:
    """JSON that every reader accepts: arrays and tensors become lists, NaN and infinities null."""
    return (json.dumps(_plain_json(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode()


def encode_json_line(value: Any) -> bytes:
    """The same in one line, for files that grow line by line."""
    return (json.dumps(_plain_json(value), allow_nan=False, ensure_ascii=False) + "\n").encode()


def _plain_json(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy and torch, arrays and scalars
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_json(item) for item in value]
    return str(value) if isinstance(value, os.PathLike) else value


def publish_folder(temporary: Path, final: Path) -> None:
    """Give a finished folder a new name; its files must have been made with ``create_file``.

    Never replaces: between removing an old folder and naming the new one there would be neither.
    """
    if os.path.lexists(final):
        raise FileExistsError(f"{final} exists already")
    sync_folder(temporary)
    disk.system.rename(temporary, final)
    sync_folder(final.parent)


def replace_link(link: Path, target: str) -> None:
    """Point ``link`` at ``target`` (relative to the link's folder); readers see the old or the new one."""
    temporary = link.with_name(f".tmp-{link.name}-{os.getpid()}")
    try:
        disk.remove_file(temporary)
        disk.system.symlink(target, temporary)
        rename(temporary, link)
    except BaseException:
        with suppress(OSError):
            disk.remove_file(temporary)
        raise


@contextmanager
def removed_on_error(path: Path | None) -> Iterator[None]:
    """A file, if there is one, that is of no use once the block has failed."""
    try:
        yield
    except BaseException:
        if path is not None:
            with suppress(OSError):
                disk.remove_file(path)
        raise


def remove_folder(path: Path) -> None:
    """Remove an unpublished folder; one that resists is left for the next attempt."""
    with suppress(OSError):
        disk.remove_tree(path)


def discard_folder(path: Path) -> None:
    """Remove a published folder: first its name, so that no half of it is ever found."""
    doomed = path.with_name(f".del-{path.name}")
    remove_folder(doomed)
    disk.system.rename(path, doomed)
    sync_folder(path.parent)  # or a power cut could bring the name back, with half of the files
    remove_folder(doomed)
