"""Settings of runs as flat text: what two runs share, what tells them apart, which differ in their seed alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

LONGEST_LABEL = 90

# what does not make a run another experiment: its name and place, the machine, who is told about it
NOT_PARTS = ("seed", "run_name", "output_dir", "track")
NOT_GROUPS = ("hardware.", "wandb.", "mlflow.", "tensorboard.", "checkpoint.")

# of the protocol, what changes the meaning of a score
SCORING_KEYS = (
    "repeat_action_probability",
    "frameskip",
    "action_repeat",
    "full_action_space",
    "noop_max",
    "terminal_on_life_loss_eval",
    "eval_max_episode_frames",
    "flicker_probability",
)


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """``agent.gamma`` → ``0.99`` and so on, everything as text."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from flatten(inner, f"{path}.{key}" if path else str(key))
    elif path:
        yield path, "null" if value is None else str(value)


def label_runs(settings: Mapping[str, Mapping[str, str]], families: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """A label for each run that says what tells it from the others; runs that differ in their seed alone share one.

    ``families`` are the words every run has (agent, game, protocol). Runs are told apart by those words first and by
    single settings only within a family: another agent has dozens of other settings, and its name says it all.
    """
    columns = list(zip(*families.values(), strict=True))
    shown = [place for place, words in enumerate(columns) if len(set(words)) > 1] or [0]
    labels: dict[str, str] = {}
    taken: dict[str, str] = {}  # two labels that begin alike must not become one when they are cut
    for family in dict.fromkeys(tuple(words) for words in families.values()):
        members = [name for name, words in families.items() if tuple(words) == family]
        keys = _differing([settings[name] for name in members])
        for name in members:
            words = [family[place] for place in shown]
            words += [", ".join(f"{_short(key)}={settings[name].get(key, '-')}" for key in keys)] if keys else []
            labels[name] = taken.setdefault(" · ".join(words), _cut(" · ".join(words), taken.values()))
    return labels


def scoring(settings: Mapping[str, str]) -> dict[str, str]:
    """Those settings of a run that change what its score means."""
    keys = (f"env_protocol.{key}" for key in SCORING_KEYS)
    return {key: settings[key] for key in keys if key in settings}


def _cut(label: str, taken: Iterable[str]) -> str:
    if len(label) <= LONGEST_LABEL:
        return label
    short = label[: LONGEST_LABEL - 1] + "…"
    same = sum(other.startswith(short) for other in taken)
    return f"{short} ({same + 1})" if same else short


def _differing(settings: Sequence[Mapping[str, str]]) -> list[str]:
    keys = dict.fromkeys(key for one in settings for key in one)
    parts = [key for key in keys if key not in NOT_PARTS and not key.startswith(NOT_GROUPS)]
    return [key for key in parts if len({one.get(key, "-") for one in settings}) > 1]


def _short(key: str) -> str:
    """``agent.n_step`` is known as ``n_step``; ``agent.name`` as ``agent``."""
    group, _, last = key.rpartition(".")
    return group if last == "name" and group else last
