"""The zoo: named presets, read from recipes in ``configs/zoo/**/*.yaml`` and from the user's own.

    title: Proximal policy optimization
    overrides: [agent=ppo, env_protocol=paper_v4, training.total_env_frames=40000000]
    provenance: {source: where the settings come from, budget: …, differs: …}
    games:
      pong: {}
      breakout: {overrides: […], provenance: {…}, measured: {…}}

Each game makes a preset ``<game>_<name of the file>``; what it says itself is added to the recipe's. With
``race: {runs: 4, share: 0.15}`` a preset is that many runs with seeds of their own for that share of the budget, of
which the best goes on alone. A file with ``presets`` instead of ``games`` is a manifest of a benchmark. ``measured``
holds scores of runs that were made, never scores from a paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from retrograd.core.errors import UsageError, suggest
from retrograd.core.plain_yaml import load_plain_yaml

PROVENANCE = ("source", "budget", "differs")
MEASURED = ("mean_return", "episodes", "seeds", "frames", "commit", "command", "notes")
RECIPE = ("title", "overrides", "race", "provenance", "games")
RACE = ("runs", "share")
GAME = ("overrides", "provenance", "measured")
MANIFEST = ("title", "presets", "seeds", "judged_by")


@dataclass(frozen=True)
class Race:
    """So many runs for this share of the budget, then the best of them alone."""

    runs: int
    share: float


@dataclass(frozen=True)
class Preset:
    """One game with one recipe."""

    name: str
    game: str
    title: str
    overrides: tuple[str, ...]
    provenance: Mapping[str, str]
    measured: Mapping[str, Any] | None
    path: Path
    race: Race | None = None

    def word(self, key: str) -> str | None:
        """What the preset sets ``key`` to; the last one counts."""
        found = [word.partition("=")[2] for word in self.overrides if word.partition("=")[0] == key]
        return found[-1] if found else None

    def to_dict(self) -> dict[str, Any]:
        frames = self.word("training.total_env_frames")
        return {
            "name": self.name,
            "title": self.title,
            "game": self.game,
            "agent": self.word("agent"),
            "env_protocol": self.word("env_protocol"),
            "total_env_frames": None if frames is None else int(frames),
            "overrides": list(self.overrides),
            "race": None if self.race is None else asdict(self.race),
            "provenance": dict(self.provenance),
            "measured": None if self.measured is None else dict(self.measured),
        }


@dataclass(frozen=True)
class Benchmark:
    """Presets that are run together."""

    name: str
    title: str
    presets: tuple[str, ...]
    seeds: int
    judged_by: str

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "presets": list(self.presets),
            "seeds": self.seeds,
            "judged_by": self.judged_by,
        }


@dataclass(frozen=True)
class Zoo:
    """All presets and benchmarks; a file of the user's replaces a shipped one of the same name."""

    presets: Mapping[str, Preset]
    benchmarks: Mapping[str, Benchmark] = field(default_factory=dict)

    @classmethod
    def read(cls, folders: Sequence[Path]) -> Zoo:
        """``folders`` in order of search, the first winning."""
        files: dict[str, Path] = {}
        for folder in reversed(folders):
            found = sorted(folder.rglob("*.yaml"))
            files |= {path.relative_to(folder).with_suffix("").as_posix(): path for path in found}
        presets: dict[str, Preset] = {}
        manifests: dict[str, tuple[Path, dict[str, Any]]] = {}
        for name, path in sorted(files.items()):
            content = _load(path)
            if "presets" in content:
                manifests[name] = path, content
                continue
            for preset in _recipe(path, content):
                if preset.name in presets:
                    raise UsageError(f"{path} and {presets[preset.name].path} both make the preset {preset.name}")
                presets[preset.name] = preset
        return cls(presets, {name: _manifest(name, *found, presets) for name, found in manifests.items()})

    def find(self, name: str) -> Preset:
        if name not in self.presets:
            raise UsageError(
                f"zoo={name} is not known; retrograd zoo list shows all {len(self.presets)}."
                f"{suggest(name, [*self.presets, *self.benchmarks])}"
            )
        return self.presets[name]

    def select(self, *, game: str | None = None, agent: str | None = None) -> list[Preset]:
        """The presets of one game, of one agent, or both; a name that none has is an error."""
        for key, wanted, known in (
            ("--game", game, {preset.game for preset in self.presets.values()}),
            ("--agent", agent, {str(preset.word("agent")) for preset in self.presets.values()}),
        ):
            if wanted is not None and wanted not in known:
                raise UsageError(f"{key} {wanted}: there are {', '.join(sorted(known))}.{suggest(wanted, known)}")
        return [
            preset
            for preset in self.presets.values()
            if game in (None, preset.game) and agent in (None, preset.word("agent"))
        ]


def _load(path: Path) -> dict[str, Any]:
    try:
        content = load_plain_yaml(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or not ({"games", "presets"} & content.keys()):
        raise UsageError(f"{path} must hold a recipe with games, or a benchmark with presets")
    return content


def _recipe(path: Path, content: dict[str, Any]) -> list[Preset]:
    _check_keys(path, "recipe", content, RECIPE)
    games = content["games"]
    if not isinstance(games, dict) or not games:
        raise UsageError(f"{path}: games must name at least one game, as in games: {{pong: {{}}}}")
    presets, race = [], _race(path, content)
    for game, own in games.items():
        where = f"game {game}"
        own = _mapping(path, where, own or {})
        _check_keys(path, where, own, GAME)
        provenance = {
            **_mapping(path, "provenance", content.get("provenance", {})),
            **_mapping(path, where, own.get("provenance", {})),
        }
        _check_keys(path, "provenance", provenance, PROVENANCE)
        if not provenance.get("source"):
            raise UsageError(f"{path}: provenance.source must say where the settings come from")
        measured = own.get("measured")
        if measured is not None:
            _check_keys(path, f"{where}: measured", _mapping(path, where, measured), MEASURED)
        presets.append(
            Preset(
                name=f"{game}_{path.stem}",
                game=str(game),
                title=str(content.get("title", path.stem)),
                overrides=(f"env={game}", *_words(path, content), *_words(path, own)),
                provenance={key: str(text) for key, text in provenance.items()},
                measured=measured,
                path=path,
                race=race,
            )
        )
    return presets


def _race(path: Path, content: Mapping[str, Any]) -> Race | None:
    if "race" not in content:
        return None
    told = _mapping(path, "race", content["race"])
    _check_keys(path, "race", told, RACE)
    runs, share = told.get("runs"), told.get("share")
    if type(runs) is not int or runs < 2 or type(share) is not float or not 0 < share < 1:
        raise UsageError(f"{path}: race must have runs, at least 2, and a share between 0 and 1, not {told}")
    return Race(runs, share)


def _manifest(name: str, path: Path, content: dict[str, Any], presets: Mapping[str, Preset]) -> Benchmark:
    _check_keys(path, "benchmark", content, MANIFEST)
    chosen: dict[str, None] = {}
    for pattern in content["presets"]:
        found = [preset for preset in presets if fnmatchcase(preset, str(pattern))]
        if not found:
            raise UsageError(f"{path}: no preset is called {pattern}.{suggest(str(pattern), presets)}")
        chosen |= dict.fromkeys(found)
    seeds = content.get("seeds", 1)
    if type(seeds) is not int or seeds < 1:
        raise UsageError(f"{path}: seeds={seeds!r} must be a whole number of at least 1")
    return Benchmark(name, str(content.get("title", name)), tuple(chosen), seeds, str(content.get("judged_by", "")))


def _words(path: Path, content: Mapping[str, Any]) -> tuple[str, ...]:
    words = content.get("overrides", [])
    if not isinstance(words, list) or not all(isinstance(word, str) and "=" in word for word in words):
        raise UsageError(f"{path}: overrides must be a list of key=value, as on the command line")
    return tuple(words)


def _mapping(path: Path, where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {where} must hold keys and values, not {value!r}")
    return value


def _check_keys(path: Path, where: str, content: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in content:
        if key not in known:
            raise UsageError(
                f"{path}: {where}: unknown key {key}; known are {', '.join(known)}.{suggest(str(key), known)}"
            )
