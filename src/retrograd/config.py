"""Composing, checking and saving a run's config; below ``build.py`` nobody sees it.

Groups are chosen (``env=breakout``), then single keys are set (``preset.lr=0.001``). The result is
resolved, checked against ``schema.py`` and frozen; the run folder keeps it as ``.hydra/config.yaml``.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from retrograd import schema
from retrograd.config_checks import check_together
from retrograd.core.errors import UsageError, suggest
from retrograd.core.plain_yaml import load_plain_yaml
from retrograd.experiments.zoo import Zoo

SHIPPED = Path(__file__).parent / "configs"
TRACKS: dict[str, dict[str, str]] = {
    "A": {"agent": "dqn", "preset": "paper", "replay": "uniform", "env_protocol": "paper_v4"},
    "B": {"agent": "modern", "preset": "modern", "replay": "prioritized", "env_protocol": "modern_v5_sticky"},
}

# keys that older configs do not have, with what was done before there was a choice
YOUNGER_KEYS: dict[str, dict[str, Any]] = {
    "wandb": {"mode": "online"},
    "mlflow": {"tracking_uri": None, "experiment": None},
    "hardware": {"onednn_linear": False, "autocast": None},
    "env_protocol": {"flicker_probability": 0.0, "max_pool": True},
    "training": {"pause_at_frames": None},
}
_YOUNGER_PPO: dict[str, Any] = {
    "critic_optimizer": "shared",
    "adaptive_kl": None,
    "adaptive_kl_end": None,
    "held": 0.0,
    "fall": "linear",
}
YOUNGER_AGENT_KEYS: dict[str, dict[str, Any]] = {
    "value": {"encoder_layer_norm": False, "standardize_pixels": False, "initial_weights": None},
    "ppo": {**_YOUNGER_PPO, "standardize_pixels": False, "reward_ends_sum": False},
    "recurrent_ppo": _YOUNGER_PPO,
}


@dataclass(frozen=True)
class Config:
    """A resolved, checked, read-only config: ``config["agent"]["gamma"]``."""

    values: Mapping[str, Any]
    notes: tuple[str, ...] = field(default=())  # what should be said aloud before the run

    def __getitem__(self, group: str) -> Any:
        return self.values[group]

    @property
    def protocol(self) -> str:
        """What scores are made under: the shipped protocol of that name only where nothing of it was changed."""
        values = self.values["env_protocol"]
        name: str = values["name"]
        if name not in ConfigManager(None).options("env_protocol"):
            return name  # the user's own
        changed = [f"{key}={values[key]}" for key in _differing("env_protocol", name, values)]
        return f"custom ({name} with {', '.join(changed)})" if changed else name

    def to_dict(self) -> dict[str, Any]:
        """A copy in plain dicts and lists."""
        values: dict[str, Any] = _thaw(self.values)
        return values

    def to_yaml(self) -> str:
        return OmegaConf.to_yaml(OmegaConf.create(_thaw(self.values)))

    def with_values(self, changes: Mapping[str, Any]) -> Config:
        """Another config with some dotted keys changed, checked again."""
        values = _thaw(self.values)
        for key, value in changes.items():
            *groups, last = key.split(".")
            place: Any = values
            for group in groups:
                place = place.get(group) if isinstance(place, dict) else None
            if not isinstance(place, dict) or last not in place:
                raise UsageError(f"unknown key {key}.{_suggest_key(key, _flatten(OmegaConf.create(values)))}")
            _refuse_home(key, value)
            place[last] = value.item() if getattr(value, "ndim", None) == 0 else value  # numpy's numbers are no YAML
        return _finish(values, changes)


class ConfigManager:
    """Composes configs from the shipped groups and a ``configs/`` folder of the user's, searched first."""

    def __init__(self, user_folder: str | Path | None = "configs") -> None:
        folder = Path(user_folder).resolve() if user_folder else None
        self.folder = folder if folder and (folder.is_dir() and folder != SHIPPED) else None

    def compose(self, overrides: Sequence[str] = (), config_file: str | Path | None = None) -> Config:
        """Groups, then the preset's keys, the file's and single ones; every mistake is a UsageError."""
        choices, settings = self._split(overrides)
        if "ablation" in choices:
            raise UsageError("ablation is a series of runs, not one: use retrograd sweep ablation=…")
        content = self._read(config_file) if config_file else {}
        groups = self.groups()
        chosen_in_file = {key: str(value) for key, value in content.items() if key in groups and isinstance(value, str)}
        base = self._whole_base(content, choices, origin=f"--config {config_file}")
        if base:
            content = {key: value for key, value in content.items() if key == "agent" or key not in choices}
        chosen = {**base, **chosen_in_file, **choices}
        preset = chosen.pop("zoo", None)
        preset_choices, preset_settings = self._split(self.zoo().find(preset).overrides if preset else ())
        composed = self._compose_groups({**preset_choices, **chosen})
        self._set(composed, "zoo", preset, origin="")
        for override in preset_settings:
            self._set(composed, str(override.key_or_group), override.value(), origin=f"zoo={preset}: ")
        for key, value in content.items():
            if key not in chosen_in_file and key != "track":
                self._set(composed, key, value, origin=f"{config_file}: ")
        for override in settings:
            self._set(composed, str(override.key_or_group), override.value(), origin="")
        set_in_file = [] if base else _dotted(content)
        return _finish(self._resolve(composed), [*set_in_file, *(str(each.key_or_group) for each in settings)])

    def _whole_base(self, content: Mapping[str, Any], choices: Mapping[str, str], origin: str) -> dict[str, str]:
        """Of a file with a whole config, as ``--show-config`` and runs write it: an agent with the same keys."""
        agent = content.get("agent")
        if not isinstance(agent, dict) or "kind" not in agent:
            return {}
        name = agent.get("name")
        if choices.get("agent", name) != name:
            raise UsageError(
                f"agent={choices['agent']} cannot be chosen beside {origin}, which holds every key of agent={name}; "
                "take agent, preset and replay out of it, or write agent.name=… to change the name alone"
            )
        if name in self.options("agent"):
            return {"agent": str(name)}
        shipped = ConfigManager(None).options("agent")
        alike = [option for option in shipped if _shipped_group("agent", option)["kind"] == agent["kind"]]
        return {"agent": alike[0]} if alike else {}

    def zoo(self) -> Zoo:
        """The presets behind ``zoo=…``, shipped ones and the user's."""
        return Zoo.read(self.folders("zoo"))

    def _split(self, words: Sequence[str]) -> tuple[dict[str, str], list[Override]]:
        """Chosen groups, and the settings of single keys."""
        groups, parsed = self.groups(), [self._parse(word) for word in words]
        chosen = [override for override in parsed if override.key_or_group in groups]
        settings = [override for override in parsed if override.key_or_group not in groups]
        return {str(override.key_or_group): str(override.value()) for override in chosen}, settings

    def groups(self) -> list[str]:
        folders = [SHIPPED, *([self.folder] if self.folder else [])]
        return sorted({path.name for folder in folders for path in folder.iterdir() if path.is_dir()})

    def options(self, group: str) -> list[str]:
        return sorted({path.stem for folder in self.folders(group) for path in folder.glob("*.yaml")})

    def folders(self, group: str) -> list[Path]:
        """Where a group's files are, the user's first."""
        return [folder / group for folder in (self.folder, SHIPPED) if folder is not None]

    def _compose_groups(self, chosen: Mapping[str, str]) -> DictConfig:
        overrides = []
        for group, option in chosen.items():
            if option in self.options(group):
                overrides.append(f"{group}={option}")
            elif group == "env":
                name, game_id = _find_environment(option)
                overrides += ["env=any", f"env.name='{name}'", f"env.game_id='{game_id}'"]
            else:
                known = self.options(group)
                raise UsageError(
                    f"{group}={option} is not known; there are {', '.join(known)}.{suggest(option, known)}"
                )
        return copy.deepcopy(_compose_files(self.folder, tuple(overrides)))

    @staticmethod
    def _parse(text: str) -> Override:
        override = _parse_override(text)
        if override.is_delete() or override.is_sweep_override():
            raise UsageError(f"{text!r}: one run takes one value a key, written key=value")
        return override

    @staticmethod
    def _read(path: str | Path) -> dict[str, Any]:
        try:
            plain = load_plain_yaml(Path(path).read_text(encoding="utf-8"))
            content = OmegaConf.to_container(OmegaConf.create({} if plain is None else plain), resolve=False)
        except (OSError, ValueError, OmegaConfBaseException) as error:
            raise UsageError(f"--config {path} cannot be read: {error}") from error
        except Exception as error:  # the YAML library has no common base with the errors above
            raise UsageError(f"--config {path} is not YAML: {error}") from error
        if not isinstance(content, dict):
            raise UsageError(f"--config {path} must hold keys and values, not {type(content).__name__}")
        return {str(key): value for key, value in content.items()}

    @staticmethod
    def _set(composed: DictConfig, key: str, value: Any, origin: str) -> None:
        if OmegaConf.select(composed, key, default=_ABSENT, throw_on_missing=False) is _ABSENT:
            raise UsageError(f"{origin}unknown key {key}.{_suggest_key(key, _flatten(composed))}")
        current = OmegaConf.select(composed, key, throw_on_resolution_failure=False)
        if isinstance(current, DictConfig) != isinstance(value, dict):
            wanted = "a group of keys" if isinstance(current, DictConfig) else "one value"
            raise UsageError(f"{origin}{key}={value!r} must be {wanted}")
        if isinstance(value, dict):
            for inner, inner_value in value.items():
                ConfigManager._set(composed, f"{key}.{inner}", inner_value, origin)
            return
        _refuse_home(key, value, origin)
        OmegaConf.set_struct(composed, False)
        OmegaConf.update(composed, key, value)

    @staticmethod
    def _resolve(composed: DictConfig) -> dict[str, Any]:
        try:
            values = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        except OmegaConfBaseException as error:
            raise UsageError(f"the config cannot be resolved: {error}") from error
        assert isinstance(values, dict)
        return {str(key): value for key, value in values.items()}


_ABSENT = object()


def _refuse_home(key: str, value: Any, origin: str = "") -> None:
    """Where it is set anew only: a run that lies in a folder of that name can still be read."""
    if key == "output_dir" and str(value).startswith("~"):
        raise UsageError(f"{origin}{key}={value}: ~ means your home to shells alone; write $HOME or the whole path")


def _parse_override(text: str) -> Override:
    parser = OverridesParser.create()
    try:
        override: Override = parser.parse_overrides([text])[0]
        return override
    except (HydraException, ValueError) as error:
        key, sign, value = text.partition("=")
        try:  # letters and signs that Hydra wants in quotes: shells take those away
            override = parser.parse_overrides([f"{key}={QuotedString(value, Quote.single).with_quotes()}"])[0]
        except HydraException:
            sign = ""
        if not sign:
            raise UsageError(
                f"{text!r} is not an override; write key=value, e.g. env=breakout preset.lr=0.001"
            ) from error
        return override


@lru_cache(maxsize=16)
def _compose_files(user_folder: Path | None, overrides: tuple[str, ...]) -> DictConfig:
    """What the files say for these choices; kept, because composing takes a tenth of a second."""
    GlobalHydra.instance().clear()
    with TemporaryDirectory() as overlay:
        try:
            shutil.copytree(SHIPPED, overlay, dirs_exist_ok=True)
            if user_folder:  # the user's files lie over ours: Hydra's own search path would put them behind
                shutil.copytree(user_folder, overlay, dirs_exist_ok=True, ignore_dangling_symlinks=True)
            with initialize_config_dir(overlay, version_base="1.3"):
                return compose("config", overrides=list(overrides))
        except (HydraException, OmegaConfBaseException, yaml.YAMLError, OSError, UnicodeError) as error:
            said = str(error).replace(overlay, str(user_folder or SHIPPED))
            beside = f" with the files in {user_folder}" if user_folder else ""
            raise UsageError(f"the config cannot be composed{beside}: {said}") from error


def parse_values(overrides: Sequence[str]) -> dict[str, Any]:
    """``["eval.epsilon=0.01"]`` → ``{"eval.epsilon": 0.01}``."""
    parsed = [ConfigManager._parse(text) for text in overrides]
    return {str(override.key_or_group): override.value() for override in parsed}


def from_saved(content: Mapping[str, Any]) -> Config:
    """The config a run folder or a checkpoint holds; a key younger than it takes the value that changes nothing."""
    values = {"zoo": None, **_thaw(content)}
    for group in ("training", "checkpoint", "hardware"):
        values[group] = _shipped_group(group, "default") | YOUNGER_KEYS.get(group, {}) | values.get(group, {})
    for group, younger in YOUNGER_KEYS.items():
        values[group] = younger | values.get(group, {})
    if (kind := values.get("agent", {}).get("kind")) in YOUNGER_AGENT_KEYS:
        values["agent"] = YOUNGER_AGENT_KEYS[kind] | values["agent"]
    if values.get("agent", {}).get("kind") == "value":
        for group, option in {**TRACKS["A"], "training": "default"}.items():
            values[group] = _shipped_group(group, option) | values.get(group, {})
    return _finish(values)


def _finish(values: dict[str, Any], chosen_keys: Iterable[str] = ()) -> Config:
    """``chosen_keys`` were set one by one: whoever did is told of those without effect."""
    track, notes = _track(values)
    values["track"] = track
    schema.check(values)
    check_together(values)
    return Config(_freeze(values), (*notes, *schema.unused(values["agent"]["kind"], chosen_keys)))


def _dotted(content: Mapping[str, Any]) -> list[str]:
    """``{"eval": {"epsilon": 0}}`` → ``["eval.epsilon"]``."""
    return [f"{group}.{key}" for group, inner in content.items() if isinstance(inner, Mapping) for key in inner]


def _track(values: Mapping[str, Any]) -> tuple[str, tuple[str, ...]]:
    """A or B when the four groups are exactly the track's, else custom and what differs."""
    agent = values.get("agent")
    training = values.get("training")
    if isinstance(training, Mapping) and training.get("null_learner") is True:
        return "custom", ("Nothing is learned: training.null_learner=true plays at random in the agent's place.",)
    if isinstance(agent, Mapping) and agent.get("kind") in schema.KIND_GROUPS:
        return "custom", ()  # the tracks are for value-based agents: nothing was mixed
    nearest, fewest = "A", None
    for track, choices in TRACKS.items():
        differences = []
        for group, option in choices.items():
            actual = values.get(group)
            actual = actual if isinstance(actual, Mapping) else {}
            differences += [f"{group}.{key}={actual.get(key)!r}" for key in _differing(group, option, actual)]
        if not differences:
            return track, ()
        if fewest is None or len(differences) < len(fewest):
            nearest, fewest = track, differences
    assert fewest is not None
    listed = ", ".join(fewest[:6]) + (f" and {len(fewest) - 6} more" if len(fewest) > 6 else "")
    return "custom", (f"This is a mixture, recorded as track=custom; it differs from track {nearest} in {listed}.",)


def _differing(group: str, option: str, actual: Mapping[str, Any]) -> list[str]:
    """Keys whose values are not those of the shipped file; what that takes from other groups does not count."""
    shipped = _shipped_group(group, option)
    return [
        key
        for key in sorted({*shipped, *actual})
        if not str(shipped.get(key)).startswith("${") and shipped.get(key) != actual.get(key)
    ]


@lru_cache(maxsize=64)
def _shipped_group(group: str, option: str) -> dict[str, Any]:
    """One shipped group file with the files it builds on, interpolations left as text."""
    content = OmegaConf.to_container(OmegaConf.load(SHIPPED / group / f"{option}.yaml"), resolve=False)
    assert isinstance(content, dict)
    merged: dict[str, Any] = {}
    for base in content.pop("defaults", []):
        if isinstance(base, str):  # else it chooses the file of another group
            merged |= _shipped_group(group, base)
    return merged | {str(key): value for key, value in content.items()}


def _find_environment(option: str) -> tuple[str, str]:
    """``env=ms_pacman`` and ``env=LunarLander-v3`` need no file of their own."""
    from retrograd.envs.names import find_environment

    return find_environment(option)


def _flatten(config: DictConfig) -> list[str]:
    keys: list[str] = []
    for name in map(str, config):
        value = config._get_node(name)
        keys.append(name)
        if isinstance(value, DictConfig):
            keys += [f"{name}.{key}" for key in _flatten(value)]
    return keys


def _suggest_key(key: str, known: list[str]) -> str:
    """Near misses of the whole key, and of its last word in any group."""
    last = key.rsplit(".", 1)[-1]
    same_word = [name for name in known if name.rsplit(".", 1)[-1] == last]
    if same_word:
        return f" Did you mean {' or '.join(repr(name) for name in same_word[:3])}?"
    return suggest(key, known) or suggest(last, known)


def _freeze(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MappingProxyType({str(key): _freeze(inner) for key, inner in value.items()})
    return tuple(_freeze(inner) for inner in value) if isinstance(value, list | tuple) else value


def _thaw(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _thaw(inner) for key, inner in value.items()}
    return [_thaw(inner) for inner in value] if isinstance(value, list | tuple) else value
