"""What a run leaves behind when a failure gate stopped it: the figures, and the batch it closed on."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from retrograd.core.errors import FailureGate
from retrograd.training import durable

REPORT, BATCH = "failure.json", "failure_batch.npz"
EARLIER = "failure_before_resume.json"


def dump_failure(folder: Path, failure: FailureGate, report: Mapping[str, Any]) -> None:
    """Write the report and the batch into the run's folder and say so in the error.

    A dump that cannot be written must not hide what it was to explain.
    """
    content = {"error": str(failure), **report, "batch": BATCH if failure.batch else None}
    try:
        if failure.batch:
            packed = io.BytesIO()
            arrays: dict[str, Any] = {name: np.asarray(array) for name, array in failure.batch.items()}
            np.savez_compressed(packed, allow_pickle=False, **arrays)
            durable.write_bytes(folder / BATCH, packed.getvalue())
        durable.write_json(folder / REPORT, content)
    except OSError as error:
        failure.add_note(f"No details were written to {folder}: {error.strerror or error}")
        return
    shown = f"{folder / REPORT} and {BATCH}" if failure.batch else f"{folder / REPORT}"
    failure.add_note(f"Details: {shown}; the last good checkpoint is untouched.")


def set_aside(folder: Path) -> None:
    """The run goes on: what stopped it once is kept under another name, as it is no longer how the run stands."""
    if (folder / REPORT).exists():
        durable.rename(folder / REPORT, folder / EARLIER)
