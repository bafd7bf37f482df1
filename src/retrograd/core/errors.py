"""Every error a user may meet, with the exit code the command line gives it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any


class RetrogradError(Exception):
    """A problem we understand: shown as one message, without a traceback."""

    exit_code = 1


class UsageError(RetrogradError):
    """The user asked for something impossible; nothing was started or written."""

    exit_code = 2


class CheckpointError(RetrogradError):
    """A checkpoint cannot be read; names the file and the reason."""

    exit_code = 2


class InUseError(RetrogradError):
    """Another process is at work in the folder; nothing was changed."""

    exit_code = 75  # by convention a failure that passes: the same command may succeed later


class FailureGate(RetrogradError):
    """A value that must be finite was not; the run stops before it does harm. ``batch`` is what it came with."""

    exit_code = 5

    def __init__(self, message: str, *, batch: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.batch = dict(batch or {})


class ResourceError(RetrogradError):
    """The machine ran out of disk or memory; what was saved before is good."""

    exit_code = 6


class Stopped(Exception):
    """Not an error: the run was asked to stop in the middle of something that can be done again."""


def suggest(name: str, known: Iterable[str], limit: int = 3) -> str:
    """``" Did you mean 'a' or 'b'?"``, or nothing when no known name is close."""
    lowered = {candidate.lower(): candidate for candidate in known}
    close = [lowered[match] for match in get_close_matches(name.lower(), lowered, limit, 0.5)]
    return f" Did you mean {' or '.join(repr(match) for match in close)}?" if close else ""


def missing_extra(feature: str, extra: str) -> UsageError:
    """The error for an optional dependency that is not installed."""
    return UsageError(f'{feature} needs an optional part: pip install "retrograd[{extra}]"')
