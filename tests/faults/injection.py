"""One layer for all fault tests: a file system, a clock and signals that misbehave exactly when told to.

``FaultyDisk`` counts every change of the disk and fails, or ends the process, at the k-th. ``PowerCut`` also remembers
what was synced, and can make the folder look as after a power cut: whatever was not synced is gone, or not, as a random
generator decides. Both stand in for ``retrograd.core.disk.system``, the one door of the package to the disk.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from retrograd.core import disk
from retrograd.core.disk import FileSystem

Fault = Callable[[str, Path], None]


class Crash(BaseException):
    """The process is gone: nothing after this may run, so no ``except Exception`` must catch it."""


def crash(operation: str, path: Path) -> None:
    raise Crash(f"{operation} {path.name}")


def leave(operation: str, path: Path) -> None:
    os._exit(137)


def refuse(number: int) -> Fault:
    """The system says no, as with ENOSPC or EIO."""

    def fail(operation: str, path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    return fail


class FaultyDisk(FileSystem):
    """Does what the real one does, until the ``at``-th change; from then on ``fault`` happens, ``times`` times.

    After a ``Crash`` every further change is refused, too: a dead process cleans up nothing.
    """

    def __init__(self, at: int | None = None, fault: Fault = crash, *, times: int = 1) -> None:
        self.at, self.fault, self.times = at, fault, times
        self.operations: list[str] = []
        self.dead = False

    def before(self, operation: str, path: Path) -> None:
        if self.dead:
            raise Crash("already dead")
        self.operations.append(f"{operation} {path.name}")
        if self.at is not None and self.at <= len(self.operations) < self.at + self.times:
            try:
                self.fault(operation, path)
            except Crash:
                self.dead = True
                raise

    @property
    def count(self) -> int:
        return len(self.operations)

    def create(self, path: Path) -> BinaryIO:
        self.before("open", path)
        return io.BufferedWriter(_Raw(self, path), 1 << 16)

    def append(self, path: Path) -> io.FileIO:
        self.before("open", path)
        return super().append(path)

    def sync(self, file: Any) -> None:
        file.flush()
        self.before("sync", Path(file.name))
        os.fsync(file.fileno())

    def sync_path(self, path: Path) -> None:
        self.before("sync", path)
        super().sync_path(path)

    def replace(self, source: Path, target: Path) -> None:
        self.before("rename", target)
        super().replace(source, target)

    def rename(self, source: Path, target: Path) -> None:
        self.before("rename", target)
        super().rename(source, target)

    def symlink(self, target: str, link: Path) -> None:
        self.before("link", link)
        super().symlink(target, link)

    def unlink(self, path: Path) -> None:
        if os.path.lexists(path):  # removing what is not there changes nothing
            self.before("unlink", path)
        super().unlink(path)

    def mkdir(self, path: Path) -> None:
        self.before("mkdir", path)
        super().mkdir(path)

    def rmdir(self, path: Path) -> None:
        self.before("rmdir", path)
        super().rmdir(path)


class _Raw(io.FileIO):
    """A file whose writes are counted; one that fails has written a part."""

    def __init__(self, system: FaultyDisk, path: Path) -> None:
        super().__init__(path, "xb")
        self._system, self._path = system, path

    def write(self, data: Any) -> int:
        try:
            self._system.before("write", self._path)
        except BaseException:
            super().write(bytes(data)[: len(data) // 2])
            raise
        return super().write(data)


@contextmanager
def installed(system: FileSystem) -> Iterator[None]:
    """While active, the package's door to the disk is ``system``."""
    before, disk.system = disk.system, system
    try:
        yield
    finally:
        disk.system = before


@dataclass
class _File:
    """One inode: what is on the disk for certain, and what a reader sees."""

    durable: bytes = b""
    seen: bytes = b""


@dataclass
class _Folder:
    durable: dict[str, Any] = field(default_factory=dict)  # name → inode, as last synced
    pending: list[tuple[str, Any]] = field(default_factory=list)  # (name, inode or None) since


@dataclass(frozen=True)
class _Link:
    target: str


class PowerCut(FaultyDisk):
    """A disk with a volatile cache: ``restore`` shows what may be left of ``root`` after a power cut.

    Contents are certain once their file was synced, names once their folder was. What is uncertain survives or not
    by the generator's choice, each name for itself and contents up to any length; ``keep=0.0`` loses all of it.
    """

    def __init__(self, root: Path, at: int | None = None) -> None:
        super().__init__(at)
        self.root = root
        self._known: dict[Path, Any] = {}
        self._adopt(root)

    def _adopt(self, path: Path) -> Any:
        """What lay there before this disk was watched is certain."""
        if path.is_symlink():
            node: Any = _Link(os.readlink(path))
        elif path.is_dir():
            node = _Folder({inner.name: self._adopt(inner) for inner in path.iterdir()})
        else:
            node = _File(path.read_bytes())
        self._known[path] = node
        return node

    def _name(self, path: Path, node: Any) -> None:
        self._known[path.parent].pending.append((path.name, node))
        if node is None:
            self._known.pop(path, None)
        else:
            self._known[path] = node

    def create(self, path: Path) -> BinaryIO:
        file = super().create(path)
        self._name(path, _File())
        return file

    def sync(self, file: Any) -> None:
        super().sync(file)
        self._known[Path(file.name)].durable = Path(file.name).read_bytes()

    def sync_path(self, path: Path) -> None:
        super().sync_path(path)
        node = self._known[path]
        if isinstance(node, _File):
            node.durable = path.read_bytes()
            return
        for name, inner in node.pending:
            _set(node.durable, name, inner)
        node.pending.clear()

    def replace(self, source: Path, target: Path) -> None:
        super().replace(source, target)
        self._move(source, target)

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self._move(source, target)

    def _move(self, source: Path, target: Path) -> None:
        node = self._known[source]
        inside = {path: inner for path, inner in self._known.items() if source in path.parents}
        assert source.parent == target.parent, "a rename between folders would be two changes"
        # one change: the new name is there if and only if the old one is gone
        self._known[source.parent].pending.append((f"{source.name}\0{target.name}", node))
        del self._known[source]
        self._known[target] = node
        for path, inner in inside.items():
            del self._known[path]
            self._known[target / path.relative_to(source)] = inner

    def symlink(self, target: str, link: Path) -> None:
        super().symlink(target, link)
        self._name(link, _Link(target))

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._name(path, None)

    def mkdir(self, path: Path) -> None:
        super().mkdir(path)
        self._name(path, _Folder())

    def rmdir(self, path: Path) -> None:
        super().rmdir(path)
        self._name(path, None)

    def restore(self, rng: np.random.Generator, keep: float) -> None:
        """Make the folder what the power cut left of it."""
        node = self._known[self.root]
        for path, inner in self._known.items():
            if isinstance(inner, _File):
                inner.seen = path.read_bytes()
        shutil.rmtree(self.root)
        self._write(node, self.root, rng, keep)

    def _write(self, node: Any, path: Path, rng: np.random.Generator, keep: float) -> None:
        if isinstance(node, _Link):
            path.symlink_to(node.target)
        elif isinstance(node, _File):
            survived = node.seen[: rng.integers(len(node.seen) + 1)]
            path.write_bytes(survived if node.seen != node.durable and rng.random() < keep else node.durable)
        else:
            path.mkdir()
            names = dict(node.durable)
            for name, inner in node.pending:
                if rng.random() < keep:
                    _set(names, name, inner)
            for name, inner in names.items():
                self._write(inner, path / name, rng, keep)


def _set(names: dict[str, Any], name: str, node: Any) -> None:
    if "\0" in name:
        source, name = name.split("\0")
        names.pop(source, None)
    if node is None:
        names.pop(name, None)
    else:
        names[name] = node


class JumpingClock:
    """Wall-clock time that is moved about; stands in for ``time.time``."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


NO_SPACE, IO_ERROR = refuse(errno.ENOSPC), refuse(errno.EIO)
