"""What the run takes of the machine: processor and memory everywhere, the GPU where NVIDIA's library answers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psutil

SYSTEM_COLUMNS = ("cpu_percent", "memory_gb", "gpu_percent", "gpu_memory_gb")

log = logging.getLogger(__name__)


class SystemMonitor:
    """``sample`` tells what happened since the last call; it costs well under a millisecond.

    ``gpu_uuid`` is that of the device the run learns on; None where it learns on the processor.
    """

    def __init__(self, gpu_uuid: str | None = None) -> None:
        self._process = psutil.Process()
        self._process.cpu_percent(None)  # the first answer is of no interval and always 0
        self._gpu = _open_gpu(gpu_uuid) if gpu_uuid is not None else None

    def sample(self) -> dict[str, float]:
        """``cpu_percent`` (100 is one core busy) and ``memory_gb`` of this process; the GPU's where there is one."""
        figures = {
            "cpu_percent": float(self._process.cpu_percent(None)),
            "memory_gb": self._process.memory_info().rss / 1e9,
        }
        if self._gpu is not None:
            try:
                figures |= self._gpu()
            except Exception as error:  # a driver may go away; its error types come with the optional library
                log.warning("no GPU figures from here on: %s", error)
                self._gpu = None
        return figures


def _open_gpu(uuid: str) -> Callable[[], dict[str, float]] | None:
    """A function that reads utilization and memory of one GPU, or None where the library is missing or silent."""
    try:
        import pynvml
    except ImportError:
        log.warning('the logs have no figures of the GPU without NVML: pip install "retrograd[gpu]"')
        return None
    with suppress(pynvml.NVMLError):
        pynvml.nvmlInit()
        handle: Any = pynvml.nvmlDeviceGetHandleByUUID(uuid)

        def read() -> dict[str, float]:
            return {
                "gpu_percent": float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu),
                "gpu_memory_gb": pynvml.nvmlDeviceGetMemoryInfo(handle).used / 1e9,
            }

        read()  # some drivers answer only half of the questions: better known now
        return read
    return None
