"""Optional C extensions: whoever loads one has plain code that gives the same bits."""

from __future__ import annotations

import importlib
from types import ModuleType


def load_extension(name: str, *, version: int) -> ModuleType | None:
    """The module; None where it was not built, is left over from other sources or asks too much of the processor."""
    try:
        module = importlib.import_module(name)
    except ImportError:
        return None
    built_for, usable = module.VERSION, getattr(module, "USABLE", True)
    return module if built_for == version and usable else None
