"""The one door to the disk for everything a run must not lose: a handful of calls, each the system's own.

Rooms call ``disk.system``, never ``os``, when they change files, so that whoever puts another ``FileSystem`` there (the
fault tests do) can fail, forget or end the process at every single change.
"""

from __future__ import annotations

import os
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO


class FileSystem:
    """The changes a save is made of."""

    def create(self, path: Path) -> BinaryIO:
        """A new file to write; refused when the name is taken."""
        return open(path, "xb")

    def append(self, path: Path) -> FileIO:
        """An existing file to write at its end, unbuffered: what it did not take was not written."""
        return open(path, "ab", buffering=0)

    def sync(self, file: BinaryIO | FileIO) -> None:
        """Put what was written to an open file on the disk."""
        file.flush()
        os.fsync(file.fileno())

    def sync_path(self, path: Path) -> None:
        """Put an existing file's content, or a folder's names, on the disk."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        """Give ``source`` the name ``target`` in one step, whatever had it before."""
        os.replace(source, target)

    def rename(self, source: Path, target: Path) -> None:
        """As ``replace``, for folders."""
        os.rename(source, target)

    def symlink(self, target: str, link: Path) -> None:
        os.symlink(target, link, target_is_directory=True)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)

    def rmdir(self, path: Path) -> None:
        os.rmdir(path)


system = FileSystem()


def sync_folder(path: Path) -> None:
    """Put the names in a folder on the disk."""
    if os.name == "posix":  # elsewhere a folder cannot be opened, and the system orders its names itself
        system.sync_path(path)


def make_folders(path: Path) -> None:
    """Make a folder and those above it; each name is on the disk when this returns."""
    if path.is_dir():
        return
    make_folders(path.parent)
    try:
        system.mkdir(path)
    except FileExistsError:
        if not path.is_dir():
            raise
    sync_folder(path.parent)


def remove_file(path: Path) -> None:
    """Remove a file that may be gone already."""
    with suppress(FileNotFoundError):
        system.unlink(path)


def remove_tree(path: Path) -> None:
    """Remove a folder with all that is in it, a link as the link it is; errors end it halfway."""
    if path.is_symlink() or not path.is_dir():
        remove_file(path)
        return
    for inner in sorted(path.iterdir()):
        remove_tree(inner)
    system.rmdir(path)
