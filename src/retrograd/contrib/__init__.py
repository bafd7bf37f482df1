"""What is younger than the core. ``from retrograd.contrib import RecurrentPPO`` is loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["RecurrentPPO"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'retrograd.contrib' has no attribute {name!r}")
    # it is a way in like PPO and DQN, and made where they are
    return getattr(import_module("retrograd.api"), name)
