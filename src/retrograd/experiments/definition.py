"""The definition of a sweep: what is to be run. Kept in its folder, so that the same command finds it again."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from retrograd.core.errors import UsageError, suggest
from retrograd.experiments.ablation import Ablation, parse_ablation
from retrograd.experiments.space import Space, parse_space

SEARCHES = ("grid", "random", "bayes")
METRICS = ("final", "best", "auc")
FILE = "sweep.yaml"
NAME_CHARACTERS = 60


@dataclass(frozen=True)
class RunSpec:
    """One run of a sweep. ``settings`` holds what tells it from the others, its seed aside."""

    name: str
    overrides: tuple[str, ...]
    settings: Mapping[str, str]
    seed: str | None = None
    trial: int | None = None

    @property
    def label(self) -> str:
        """What curves and tables call it: runs that differ by their seed alone share it."""
        return make_label(self.settings)


@dataclass(frozen=True)
class Definition:
    """``words`` are key=value with lists and ranges; a search also has a number of trials."""

    words: tuple[str, ...]
    search: str = "grid"
    trials: int | None = None
    metric: str = "final"
    prune: bool = False
    search_seed: int = 0
    ablation: Mapping[str, Any] | None = None  # the content of its file: that may change, a sweep may not
    race_frames: int | None = None  # of a race: where all runs are compared

    def __post_init__(self) -> None:
        for name, value, known in (("search", self.search, SEARCHES), ("metric", self.metric, METRICS)):
            if value not in known:
                raise UsageError(f"{name}={value!r} must be one of {', '.join(known)}.{suggest(str(value), known)}")
        if self.search == "grid":
            self._check_grid()
        elif self.race_frames is not None:
            raise UsageError(f"a race is a grid whose runs wait for each other, not for a {self.search} search")
        elif self.ablation is not None:
            raise UsageError(f"an ablation is a series of its own, not something for a {self.search} search")
        elif self.trials is None or self.trials < 1:
            raise UsageError(f"a {self.search} search needs a number of trials of at least 1, not {self.trials}")
        elif not set(self.space.keys) - set(self.space.fixed) - {"seed"}:
            raise UsageError(f"a {self.search} search needs something to vary, e.g. preset.lr=log(1e-5,1e-2)")
        if "run_name" in self.space.keys:
            raise UsageError("run_name cannot be given: a sweep names its runs itself; use --name for the sweep")
        series = self.series
        if series is not None:
            both = sorted(series.keys & set(self.space.keys))
            if both:
                raise UsageError(f"{both[0]} is set by the ablation's variants and cannot be given beside them")

    def _check_grid(self) -> None:
        if self.trials is not None or self.prune:
            raise UsageError("a grid runs every combination: trials and pruning belong to --search random or bayes")
        if self.space.ranges:
            key = next(iter(self.space.ranges))
            raise UsageError(f"{key} is a range, which a grid cannot run through: use --search random or bayes")

    @cached_property
    def space(self) -> Space:
        return parse_space(self.words)

    @cached_property
    def series(self) -> Ablation | None:
        return None if self.ablation is None else parse_ablation(self.ablation, "ablation")

    @property
    def seeds(self) -> tuple[str, ...]:
        """The seeds every setting is run with; empty when the config's own seed is used."""
        return self.space.lists.get(
            "seed", tuple(self.space.fixed[key] for key in ("seed",) if key in self.space.fixed)
        )

    def grid_runs(self) -> list[RunSpec]:
        """Every run of a grid, variants outermost."""
        variants = [None] if self.series is None else list(self.series.variants.values())
        specs: list[RunSpec] = []
        for variant in variants:
            for values in self.space.grid():
                settings = {key: value for key, value in values.items() if key != "seed"}
                words = (*(variant.overrides if variant else ()), *self._words(values))
                named = {"variant": variant.name, **settings} if variant else settings
                name = _folder_name(len(specs), named, values.get("seed"))
                specs.append(RunSpec(name, words, named, values.get("seed") or self.space.fixed.get("seed")))
        return specs

    def trial_runs(self, number: int, values: Mapping[str, str]) -> list[RunSpec]:
        """The runs of one trial of a search: one for each seed."""
        name = f"trial{number:03d}"
        if "seed" not in self.space.lists:
            return [RunSpec(name, self._words(values), dict(values), self.space.fixed.get("seed"), number)]
        return [
            RunSpec(f"{name}_seed{seed}", self._words({**values, "seed": seed}), dict(values), seed, number)
            for seed in self.seeds
        ]

    def _words(self, values: Mapping[str, str]) -> tuple[str, ...]:
        chosen = {**self.space.fixed, **values}
        return tuple(f"{key}={chosen[key]}" for key in (word.partition("=")[0] for word in self.words))

    @property
    def digest(self) -> str:
        facts = asdict(self)
        if self.race_frames is None:  # older than races are, a sweep finds its folder still
            del facts["race_frames"]
        content = json.dumps(facts, sort_keys=True, default=list)
        return hashlib.sha256(content.encode()).hexdigest()[:8]

    @property
    def default_name(self) -> str:
        """The same for the same command, so that it finds its folder again."""
        named = ("zoo", "agent", "env")
        parts = [self.space.fixed.get(key) or "-".join(self.space.lists.get(key, ())) for key in named]
        words = [part for part in (*parts, "" if self.search == "grid" else self.search) if part]
        return f"{_slug('_'.join(words))[:NAME_CHARACTERS] or 'sweep'}_{self.digest}"

    def save(self, folder: Path) -> None:
        from retrograd.training import durable

        content = {**asdict(self), "words": list(self.words)}
        text = "# What this sweep runs; `retrograd sweep --resume` goes on with it.\n"
        durable.write_text(folder / FILE, text + yaml.safe_dump(content, sort_keys=False, allow_unicode=True))

    @staticmethod
    def load(folder: Path) -> Definition:
        path = folder / FILE
        if not path.is_file():
            near = [each.parent.name for each in folder.parent.glob(f"*/{FILE}")] if folder.parent.is_dir() else []
            raise UsageError(f"{folder} is no sweep: there is no {FILE}.{suggest(folder.name, near)}")
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
            return Definition(**{**content, "words": tuple(content["words"])})
        except (yaml.YAMLError, TypeError, KeyError) as error:
            raise UsageError(f"{path} cannot be read: {error}") from error

    def with_trials(self, trials: int) -> Definition:
        return replace(self, trials=trials)

    def differences(self, other: Definition) -> list[str]:
        """In words, what another definition has otherwise."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{key}: {_show(theirs[key])} there, {_show(mine[key])} here" for key in mine if mine[key] != theirs[key]
        ]


def make_label(settings: Mapping[str, str]) -> str:
    """``{"agent": "dqn", "preset.lr": "1e-3"}`` → ``dqn, lr=1e-3``."""
    words = [
        value if "." not in key else f"{key.rsplit('.', 1)[-1]}={_short(value)}" for key, value in settings.items()
    ]
    return ", ".join(words) or "all runs"


def check_name(name: str) -> str:
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise UsageError(f"name={name!r} must be letters, digits and . _ + - and name one folder")
    return name


def _short(value: str) -> str:
    try:
        return f"{float(value):.4g}"
    except ValueError:
        return value


def _folder_name(number: int, settings: Mapping[str, str], seed: str | None) -> str:
    words = [*(make_label({key: value}) for key, value in settings.items()), *([f"seed{seed}"] if seed else [])]
    return f"{number:03d}_{_slug('_'.join(words))[:NAME_CHARACTERS]}".rstrip("_")


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "-", text.replace("=", "")).strip("-.")


def _show(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return " ".join(map(str, value))
    return "another content" if isinstance(value, Mapping) else str(value)
