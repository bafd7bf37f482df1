"""Files that want to run code, fill the memory or lead elsewhere, and manifests that agree with them."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import marshal
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import zstandard

from retrograd.training import durable


def forge(folder: Path, **changes: Any) -> None:
    """Make the manifest agree with changed files, as an attacker would."""
    path = folder / "manifest.json"
    manifest = {**json.loads(path.read_text()), **changes}
    manifest.pop("sha256", None)
    for name, entry in manifest["files"].items():
        if (folder / name).parent == folder and (folder / name).is_file():
            data = (folder / name).read_bytes()
            entry |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    manifest["sha256"] = hashlib.sha256(durable.encode_json(manifest)).hexdigest()
    durable.write_json(path, manifest)


class Bomb:
    """Unpickled, it makes the folder that tells that code ran."""

    def __init__(self, canary: Path) -> None:
        self.canary = str(canary)

    def __reduce__(self) -> Any:
        return os.mkdir, (self.canary,)


def torch_file(content: Any, *, legacy: bool = False) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def array_file(value: Any, *, many: bool = False) -> bytes:
    buffer = io.BytesIO()
    array = np.array([value], dtype=object)
    if many:
        np.savez(buffer, a=array)
    else:
        np.save(buffer, array)
    return buffer.getvalue()


def archive(name: str, data: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as file:
        file.writestr(name, data)
    return buffer.getvalue()


def yaml_laughs() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join([*lines, "agent: *a11"]).encode()


GIGABYTES = 1 << 32


def payloads(canary: Path) -> dict[str, bytes]:
    """By name; whatever loads one of them must neither make ``canary`` nor take gigabytes."""
    bomb = Bomb(canary)
    content = {"format": 1, "step": 2, "env_frames": 8, "parts": {"network": bomb}, "rng": bomb}
    command = f"mkdir {canary}"
    target = {"_target_": "os.mkdir", "path": str(canary), "_args_": [str(canary)]}
    zeros = bytes(1 << 24)
    bombs = zstandard.ZstdCompressor(level=3).compress(bytes(1 << 26))
    return {
        "pickle": pickle.dumps(content),
        "pickle protocol 0": pickle.dumps(content, protocol=0),
        "torch zip": torch_file(content),
        "torch legacy": torch_file(content, legacy=True),
        "torch module": torch_file({"format": 1, "step": 2, "env_frames": 8, "parts": torch.nn.Linear(1, 1)}),
        "npy object": array_file(bomb),
        "npz object": array_file(bomb, many=True),
        "yaml apply": f"!!python/object/apply:os.mkdir ['{canary}']\n".encode(),
        "yaml new": f"agent: !!python/object/new:os.system ['{command}']\nseed: 1\n".encode(),
        "yaml name": b"agent: !!python/name:os.system\n",
        "yaml laughs": yaml_laughs(),
        "target": json.dumps({**target, "agent": target, "format": 1, "step": 2}).encode(),
        "deep json": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "zip bomb": archive("agent/data.pkl", zeros, zipfile.ZIP_DEFLATED),
        "zip traversal": archive("../../agent/data.pkl", pickle.dumps(content)),
        "gzip bomb": gzip.compress(zeros, 1),
        "zstd bomb": len(bombs).to_bytes(8, "little") + bombs,
        "zstd that lies": b"\x10" + bytes(7) + b"\x28\xb5\x2f\xfd\xe0" + GIGABYTES.to_bytes(8, "little") + b"\x01\0\0",
        "marshal": marshal.dumps(compile(f"import os; os.mkdir({str(canary)!r})", "x", "exec")),
        "shell": f"#!/bin/sh\n{command}\n".encode(),
        "empty": b"",
    }


def traps(outside: Path) -> dict[str, Callable[[Path], None]]:
    """Things to put where a file should be, which are no files."""
    return {
        "link outside": lambda path: path.symlink_to(outside),
        "link to endless zeros": lambda path: path.symlink_to("/dev/zero"),
        "pipe that nobody feeds": lambda path: os.mkfifo(path),
        "folder": lambda path: path.mkdir(),
        "link to itself": lambda path: path.symlink_to(path.name),
    }
