"""From a name, an environment or a function to rows that a trainer can use."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium.envs.registration import EnvSpec

from retrograd.core.errors import UsageError, suggest
from retrograd.core.protocols import VecEnv
from retrograd.envs.atari import AtariPreprocessing, RenderCapture
from retrograd.envs.games import Game, find_game, game_names, suggest_game
from retrograd.envs.minatar import register_minatar
from retrograd.envs.protocol import AtariProtocol
from retrograd.envs.toys import register_toys
from retrograd.envs.vector import GymVec
from retrograd.envs.watchdog import Patience
from retrograd.envs.workers import Maker
from retrograd.envs.wrappers import FrameStack

Env = gymnasium.Env[Any, Any]
Source = str | Env | Callable[[], Env]
Backend = Literal["auto", "native", "gymnasium"]
BACKENDS = ("auto", "native", "gymnasium")


class EnvironmentFactory:
    """Makes environments under one protocol. Only Atari-like screens get Atari preprocessing."""

    def __init__(self, protocol: AtariProtocol | None = None) -> None:
        self.protocol = protocol if protocol is not None else AtariProtocol()

    def create_env(
        self,
        source: Source,
        *,
        protocol: AtariProtocol | None = None,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> Env:
        """A single Gymnasium environment with our wrappers on; ``options`` go to the environment itself."""
        protocol = protocol if protocol is not None else self.protocol
        env = self.apply_wrappers(_open(source, protocol, **options), protocol=protocol)
        if max_episode_steps is not None:
            env = gymnasium.wrappers.TimeLimit(env, max_episode_steps)
        return env

    def apply_wrappers(self, env: Env, *, protocol: AtariProtocol | None = None) -> Env:
        """Preprocessing, frame stack and reward clip round an Atari-like screen; any other env as it is.

        ``terminated`` stays game over; a lost life is told by ``info["life_lost"]``.
        """
        protocol = protocol if protocol is not None else self.protocol
        if not is_screen(env):
            return env
        stacked: Env = gymnasium.wrappers.FrameStackObservation(
            AtariPreprocessing(env, _fit(env, protocol)), protocol.frame_stack, padding_type="zero"
        )
        return (
            gymnasium.wrappers.TransformReward(stacked, lambda reward: float(np.sign(float(reward))))
            if protocol.reward_clip
            else stacked
        )

    def create_vec(
        self,
        source: Source,
        *,
        num_envs: int = 1,
        protocol: AtariProtocol | None = None,
        seed: int = 0,
        backend: Backend = "auto",
        threads: int = 0,
        workers: bool = False,
        max_episode_steps: int | None = None,
        capture: bool = False,
        patience: Patience | None = None,
        **options: Any,
    ) -> VecEnv:
        """``num_envs`` rows. ``threads`` is for native emulators, ``workers`` runs Gymnasium rows in processes."""
        if backend not in BACKENDS:
            raise UsageError(f"backend is {backend!r}; allowed: {', '.join(BACKENDS)}.{suggest(backend, BACKENDS)}")
        if num_envs < 1:
            raise UsageError(f"num_envs is {num_envs}, but must be at least 1")
        if max_episode_steps is not None and max_episode_steps < 1:
            raise UsageError(f"max_episode_steps is {max_episode_steps}, but must be at least 1")
        protocol = protocol if protocol is not None else self.protocol
        game = find_game(source) if isinstance(source, str) else None
        if game is not None and not (
            options or capture or workers or protocol.continuous_actions or backend == "gymnasium"
        ):
            # the emulator and its libraries are only loaded by those who play
            from retrograd.envs.native import NativeAtari

            return NativeAtari(
                game,
                num_envs,
                protocol,
                seed=seed,
                threads=threads,
                max_episode_steps=max_episode_steps,
                patience=patience,
            )
        if backend == "native":
            raise UsageError(
                f"the native backend plays Atari games with discrete actions and without capture, workers or options; "
                f"{source!r} as asked for needs backend='gymnasium'"
            )
        return _gym_rows(source, num_envs, protocol, seed, workers, max_episode_steps, capture, options, patience)

    def create_viewer(
        self,
        source: Source,
        *,
        protocol: AtariProtocol | None = None,
        seed: int = 0,
        max_episode_steps: int | None = None,
        **options: Any,
    ) -> GymVec | FrameStack:
        """One row that also has ``pop_frames()`` and ``fps``, for videos and windows."""
        protocol = protocol if protocol is not None else self.protocol
        return _gym_rows(source, 1, protocol, seed, False, max_episode_steps, True, options)


def twin(source: Source, *, capture: bool = False) -> Source:
    """A source of other instances of the same: an environment in use must not be reset under its user's feet."""
    return partial(_make_twin, source, capture) if isinstance(source, gymnasium.Env) else source


def check_twin(source: Source) -> None:
    """Refuse an environment that allows no twin before it is trained on, not at the first evaluation."""
    if isinstance(source, gymnasium.Env):
        _make_twin(source).close()


def _make_twin(source: Env, capture: bool = False) -> Env:
    """Made as it was made or, where nobody knows how (most wrappers do not tell), a copy."""
    if source.spec is not None:
        with suppress(Exception):  # whatever an environment's maker may raise
            return _make(source.spec, {"render_mode": "rgb_array"} if capture else {})
    try:
        return copy.deepcopy(source)
    except Exception as error:  # whatever an object's own copying may raise
        raise UsageError(
            f"{source} can neither be made a second time nor copied ({error}), and evaluations need another one than "
            "training; hand in a function that makes one"
        ) from error


def is_screen(env: Env) -> bool:
    """Whether this draws like an emulator: an Atari game, or unprocessed frames of 210 × 160."""
    shape = env.observation_space.shape
    return shape is not None and shape[:2] in ((210, 160), (250, 160)) and len(shape) in (2, 3)


def environment_names() -> tuple[str, ...]:
    """Every name ``create_vec`` knows besides Atari games: ids and their short forms."""
    return tuple(sorted({*_registered(), *_short_names()}))


def resolve_env_id(name: str) -> str:
    """The Gymnasium id meant by an id or a short name such as ``cartpole``; UsageError for any other."""
    if name in _registered() or ":" in name:
        return name
    short = _short_names().get(_fold(name))
    if short is None:
        near = suggest(name, [*game_names(), *_short_names(), *_registered()]) or suggest_game(name)
        raise UsageError(
            f"There is no environment {name!r}: neither one of {len(game_names())} Atari games nor a registered "
            f"Gymnasium id.{near}"
        )
    return short


def _gym_rows(
    source: Source,
    num_envs: int,
    protocol: AtariProtocol,
    seed: int,
    workers: bool,
    max_episode_steps: int | None,
    capture: bool,
    options: dict[str, Any],
    patience: Patience | None = None,
) -> GymVec | FrameStack:
    if isinstance(source, gymnasium.Env) and num_envs != 1:
        raise UsageError(f"one environment object cannot be {num_envs} rows: hand in a function that makes one")

    def make() -> Env:
        return _prepare(_open(source, protocol, capture=capture, **options), protocol, capture)

    # worker processes and a mistake in the source deserve one attempt here, where the error is readable
    first = make()
    screen = isinstance(first, AtariPreprocessing)
    name = _name_of(source, first)
    if workers:
        first.close()
    makers: list[Maker] = [make] * num_envs if workers else [lambda: first, *[make] * (num_envs - 1)]
    rows = GymVec(
        makers,
        seed=seed,
        name=name,
        workers=workers,
        reward_clip=screen and protocol.reward_clip,
        terminal_on_life_loss=screen and protocol.terminal_on_life_loss,
        max_episode_steps=max_episode_steps,
        frames_per_step=protocol.action_repeat if screen else 1,
        patience=patience,
    )
    return FrameStack(rows, protocol.frame_stack) if screen else rows


def _prepare(env: Env, protocol: AtariProtocol, capture: bool) -> Env:
    if is_screen(env):
        return AtariPreprocessing(env, _fit(env, protocol), capture=capture)
    return RenderCapture(env) if capture else env


def _fit(env: Env, protocol: AtariProtocol) -> AtariProtocol:
    """Screens that are no emulator begin at once: their games are too short to lose frames to no-ops."""
    return protocol if hasattr(env.unwrapped, "ale") else replace(protocol, noop_max=0, fire_reset=False)


def _open(source: Source, protocol: AtariProtocol, *, capture: bool = False, **options: Any) -> Env:
    if isinstance(source, gymnasium.Env):
        return source
    if not isinstance(source, str):
        env = source()
        if not isinstance(env, gymnasium.Env):
            raise UsageError(f"the function handed in made a {type(env).__name__}, not a gymnasium.Env")
        return env
    if capture:
        options["render_mode"] = "rgb_array"
    game = find_game(source)
    if game is not None:
        return _open_game(game, protocol, options)
    env_id = resolve_env_id(source)
    try:
        return _make(env_id, options)
    except gymnasium.error.DependencyNotInstalled as error:
        raise UsageError(f"{source} needs another package: {_pip_line(str(error))}") from error
    except ModuleNotFoundError as error:
        raise UsageError(f"{source} needs another package: pip install {error.name}") from error
    except gymnasium.error.Error as error:
        raise UsageError(f"{source} cannot be made: {error}") from error


def _make(which: str | EnvSpec, options: dict[str, Any]) -> Env:
    """``gymnasium.make``; an environment that has never heard of pictures is made without."""
    try:
        return gymnasium.make(which, **options)
    except TypeError as error:
        if "render_mode" not in options or "argument 'render_mode'" not in str(error):
            raise
        return gymnasium.make(which, **{name: value for name, value in options.items() if name != "render_mode"})


def _open_game(game: Game, protocol: AtariProtocol, options: dict[str, Any]) -> Env:
    import ale_py

    gymnasium.register_envs(ale_py)
    settings = {
        "obs_type": "grayscale",
        "frameskip": protocol.frameskip,
        "repeat_action_probability": protocol.repeat_action_probability,
        "full_action_space": protocol.full_action_space,
        "continuous": protocol.continuous_actions,
        "max_num_frames_per_episode": 0,  # none: AtariPreprocessing counts, and shows the frame at the cap
        "disable_env_checker": True,
    }
    return gymnasium.make(game.game_id, **{**settings, **options})


def _registered() -> dict[str, Any]:
    register_toys()
    register_minatar()
    return gymnasium.registry


def _fold(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()


def _short_names() -> dict[str, str]:
    """``cartpole`` → ``CartPole-v1``: the newest version of every id without a foreign namespace."""
    newest: dict[str, tuple[int, str]] = {}
    for env_id, spec in _registered().items():
        if spec.namespace in (None, "retrograd"):
            key, version = _fold(spec.name), spec.version or 0
            newest[key] = max(newest.get(key, (-1, "")), (version, env_id))
    return {key: env_id for key, (_, env_id) in newest.items()}


def _pip_line(message: str) -> str:
    found = re.search(r"pip install [^`'\n]+", message)
    return found.group(0).strip().rstrip(".") if found else message


def _name_of(source: Source, env: Env) -> str:
    if isinstance(source, str):
        game = find_game(source)
        return game.rom if game is not None else resolve_env_id(source)
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__
