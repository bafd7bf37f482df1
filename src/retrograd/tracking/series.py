"""How the rows of the logs are called in every tracker: ``<table>/<column>``, and CleanRL's names beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# people's plots read these: https://docs.cleanrl.dev
ALIASES: dict[str, dict[str, str]] = {
    "train": {
        "episode_return": "charts/episodic_return",
        "episode_length": "charts/episodic_length",
    },
    "update": {
        "steps_per_second": "charts/SPS",
        "epsilon": "charts/epsilon",
        "learning_rate": "charts/learning_rate",
        "loss": "losses/td_loss",
        "mean_q": "losses/q_values",
        "policy_loss": "losses/policy_loss",
        "value_loss": "losses/value_loss",
        "entropy": "losses/entropy",
        "approx_kl": "losses/approx_kl",
        "clip_fraction": "losses/clipfrac",
        "explained_variance": "losses/explained_variance",
    },
    "eval": {},
}


def named_numbers(table: str, row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row under their names; ``step`` is the axis, empty cells and text are left out."""
    numbers: dict[str, float] = {}
    aliases = ALIASES.get(table, {})
    for column, value in row.items():
        plain = value.item() if hasattr(value, "item") else value  # numpy and torch scalars
        if column == "step" or not isinstance(plain, int | float):
            continue
        numbers[f"{table}/{column}"] = float(plain)
        if column == "loss" and "policy_loss" in row:
            continue  # a sum of losses of which none is a temporal difference
        if column in aliases:
            numbers[aliases[column]] = float(plain)
    return numbers


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"agent": {"gamma": 0.99}}`` → ``{"agent.gamma": 0.99}``."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat
