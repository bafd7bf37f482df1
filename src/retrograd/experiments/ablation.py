"""Ablation series: named variants of one agent, read from ``configs/ablation/*.yaml`` or a file of the user's.

    title: What each part brings
    variants:
      rainbow: {overrides: [agent=rainbow]}
      no_double: {overrides: [agent=rainbow, agent.double=false], against: rainbow, removes: double, panel: minus}

A variant with ``against`` becomes a bar: what the part it ``adds`` or ``removes`` brings. Variants of one ``panel``
share a picture of curves; one without a panel is drawn in all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from retrograd.core.errors import UsageError, suggest
from retrograd.experiments.space import split_list

VARIANT_KEYS = ("overrides", "label", "against", "adds", "removes", "panel")


@dataclass(frozen=True)
class Variant:
    """One line of the series: what it is called, what it sets, and what it is compared with."""

    name: str
    label: str
    overrides: tuple[str, ...]
    against: str | None = None
    adds: str | None = None
    removes: str | None = None
    panel: str | None = None


@dataclass(frozen=True)
class Ablation:
    """A whole series."""

    title: str
    variants: Mapping[str, Variant]
    name: str = ""  # as it was asked for

    @property
    def keys(self) -> set[str]:
        """Every key that some variant sets."""
        return {word.partition("=")[0] for variant in self.variants.values() for word in variant.overrides}

    @property
    def panels(self) -> dict[str, list[Variant]]:
        """Panel title → its variants, those without a panel in each."""
        everywhere = [variant for variant in self.variants.values() if variant.panel is None]
        titles = dict.fromkeys(variant.panel for variant in self.variants.values() if variant.panel)
        if not titles:
            return {"Curves": everywhere}
        return {
            title: everywhere + [variant for variant in self.variants.values() if variant.panel == title]
            for title in titles
        }

    @property
    def bars(self) -> list[Variant]:
        return [variant for variant in self.variants.values() if variant.against is not None]

    def to_dict(self) -> dict[str, Any]:
        """The form ``parse_ablation`` reads."""
        return {
            "name": self.name,
            "title": self.title,
            "variants": {
                name: {
                    key: list(value) if isinstance(value, tuple) else value
                    for key in VARIANT_KEYS
                    if (value := getattr(variant, key)) is not None
                }
                for name, variant in self.variants.items()
            },
        }


def find_ablation(name: str, folders: list[Path]) -> Ablation:
    """A series by its name, the first folder that has it winning, or by the path of its file."""
    if name.endswith((".yaml", ".yml")):
        return replace(read_ablation(Path(name)), name=name)
    known = {path.stem: path for folder in reversed(folders) for path in sorted(folder.glob("*.yaml"))}
    if name not in known:
        raise UsageError(
            f"ablation={name} is not known; there are {', '.join(sorted(known))}, "
            f"or give the path of a YAML file.{suggest(name, known)}"
        )
    return replace(read_ablation(known[name]), name=name)


def read_ablation(path: Path) -> Ablation:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the ablation {path} cannot be read: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"the ablation {path} is not YAML: {error}") from error
    return parse_ablation(content, str(path))


def parse_ablation(content: Any, origin: str) -> Ablation:
    """Check everything a series can get wrong but the overrides, which each run's config checks."""
    if not isinstance(content, Mapping) or not isinstance(content.get("variants"), Mapping) or not content["variants"]:
        raise UsageError(f"{origin}: an ablation has a title and variants, each with its overrides")
    unknown = sorted(set(content) - {"name", "title", "variants"})
    if unknown:
        raise UsageError(f"{origin}: unknown key {unknown[0]}; an ablation has title and variants")
    variants = {str(name): _variant(str(name), value, origin) for name, value in content["variants"].items()}
    for variant in variants.values():
        if variant.against is not None and variant.against not in variants:
            raise UsageError(
                f"{origin}: {variant.name} is against {variant.against!r}, which is no variant here."
                f"{suggest(variant.against, variants)}"
            )
    return Ablation(str(content.get("title") or Path(origin).stem), variants, str(content.get("name") or ""))


def _variant(name: str, value: Any, origin: str) -> Variant:
    where = f"{origin}: variant {name}"
    if not re.fullmatch(r"\w[\w.+-]*", name):
        raise UsageError(f"{where}: a name is letters, digits and . _ + -, because a folder is called by it")
    if not isinstance(value, Mapping):
        raise UsageError(f"{where} must hold keys, at least overrides")
    unknown = [str(key) for key in value if key not in VARIANT_KEYS]
    if unknown:
        raise UsageError(f"{where}: unknown key {unknown[0]}.{suggest(unknown[0], VARIANT_KEYS)}")
    overrides = value.get("overrides")
    if not isinstance(overrides, list) or not all(isinstance(word, str) and "=" in word for word in overrides):
        raise UsageError(f"{where}: overrides must be a list of key=value")
    several = [word for word in overrides if len(split_list(word, word.partition("=")[2])) > 1]
    if several:
        raise UsageError(f"{where}: {several[0]} has several values; a variant is one setting")
    texts = {key: None if value.get(key) is None else str(value[key]) for key in VARIANT_KEYS[1:]}
    if (texts["adds"] is not None and texts["removes"] is not None) or (
        (texts["against"] is None) != (texts["adds"] is None and texts["removes"] is None)
    ):
        raise UsageError(f"{where}: against goes with exactly one of adds and removes")
    return Variant(
        name=name,
        label=texts["label"] or name.replace("_", " "),
        overrides=tuple(overrides),
        against=texts["against"],
        adds=texts["adds"],
        removes=texts["removes"],
        panel=texts["panel"],
    )
