"""State dicts as files: tensors and plain values alone, so that reading one never runs code.

Numpy's arrays are saved as tensors and come back as tensors, bytes as uint8 tensors.
"""

from __future__ import annotations

import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from retrograd.core.errors import CheckpointError
from retrograd.training import durable

FORMAT = 1
Copies = dict[tuple[Any, ...], torch.Tensor]  # by place in memory, kind and shape
TEXT_BYTES = 16 << 20  # of JSON or YAML: far more than any of ours, far less than the memory


def copy_plain(value: Any, where: str, copies: Copies | None = None) -> Any:
    """A copy of ``value`` as tensors on the CPU and plain Python values; what may not be saved is named.

    A tensor that is there under two names, as an encoder that actor and critic share, is copied once.
    """
    copies = {} if copies is None else copies
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, torch.Tensor):
        place = (value.device, value.data_ptr(), value.dtype, tuple(value.shape), value.stride())
        if value.numel() == 0 or place not in copies:
            copies[place] = _copy_tensor(value)
        return copies[place]
    if isinstance(value, bytes | bytearray):
        return torch.from_numpy(np.frombuffer(bytes(value), np.uint8).copy())
    if isinstance(value, np.generic) and type(value.item()) in (bool, int, float, str):
        return value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and value.dtype.isnative:
        return torch.from_numpy(np.array(value, order="C"))
    if isinstance(value, Mapping):
        return {_plain_key(key, where): copy_plain(item, f"{where}[{key!r}]", copies) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copy_plain(item, f"{where}[{index}]", copies) for index, item in enumerate(value))
    kind = f"{type(value).__name__} of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    raise CheckpointError(
        f"{where} is a {kind}: a checkpoint holds tensors, arrays of numbers, numbers, strings, bytes, None, "
        "and lists, tuples and dicts of them"
    )


def _copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    copied = tensor.detach().to("cpu", copy=True)
    # a view would take the whole tensor it looks at along
    whole = copied.untyped_storage().nbytes() <= copied.numel() * copied.element_size()
    return copied if whole else copied.clone()


def as_arrays(value: Any) -> Any:
    """What ``copy_plain`` made tensors of as arrays again."""
    if isinstance(value, torch.Tensor):
        return value.numpy()
    if isinstance(value, dict):
        return {key: as_arrays(item) for key, item in value.items()}
    return type(value)(as_arrays(item) for item in value) if isinstance(value, list | tuple) else value


def _plain_key(key: Any, where: str) -> str | int:
    if type(key) not in (str, int):
        raise CheckpointError(f"{where} has the key {key!r}: keys are strings or integers")
    return key  # type: ignore[no-any-return]


def save_bytes(path: Path, data: bytes) -> None:
    with durable.create_file(path) as file:
        file.write(data)


def save_tensors(path: Path, plain: dict[str, Any]) -> None:
    """Write what ``copy_plain`` gave."""
    with durable.create_file(path) as file:
        torch.save(plain, file)


def require_file(path: Path, max_bytes: int | None = None) -> int:
    """The size of a plain file. Links lead elsewhere, and pipes and devices may never end: no checkpoint has them."""
    try:
        status = path.lstat()
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read ({reason(error)})") from error
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointError(f"{path}: is not a plain file")
    if max_bytes is not None and status.st_size > max_bytes:
        raise CheckpointError(f"{path}: has {status.st_size} bytes, more than the {max_bytes} such a file may have")
    return status.st_size


def load_tensors(path: Path, keys: tuple[str, ...]) -> dict[str, Any]:
    size = require_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > size:  # ours are stored uncompressed; others may unpack to any size
            raise CheckpointError(f"{path}: is compressed, which no checkpoint of Retrograd is")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except CheckpointError:
        raise
    except Exception as error:  # a damaged or hostile file may fail anywhere in the reader
        raise CheckpointError(f"{path}: cannot be read ({reason(error)})") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT or any(key not in content for key in keys):
        raise CheckpointError(f"{path}: does not hold {', '.join(keys)} in format {FORMAT}")
    return content


def load_mapping(path: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    require_file(path, TEXT_BYTES)
    try:
        content = parse(path.read_text(encoding="utf-8"))
    except Exception as error:  # a damaged or hostile file may fail anywhere in the reader
        raise CheckpointError(f"{path}: cannot be read ({reason(error)})") from error
    if not isinstance(content, dict):
        raise CheckpointError(f"{path}: holds {type(content).__name__}, expected named values")
    return content


def reason(error: Exception) -> str:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return text.splitlines()[0]
