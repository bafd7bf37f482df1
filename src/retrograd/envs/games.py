"""Names of Atari games: every spelling in use leads to one record."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from retrograd.core.errors import UsageError, suggest

# cartridges without a game for one player; the emulator ships them, nobody can play them alone
_TWO_PLAYERS_ONLY = frozenset({"combat", "joust", "maze_craze", "warlords"})
_SUFFIX = re.compile(r"(NoFrameskip|Deterministic)?-v(0|4|5)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Game:
    """One Atari game under its three names."""

    rom: str  # ms_pacman
    game_id: str  # ALE/MsPacman-v5
    title: str  # MsPacman


@lru_cache(maxsize=1)
def _games() -> dict[str, Game]:
    """Games by folded name. Reads the emulator's list without importing it, which would take 0.3 s."""
    package = find_spec("ale_py")
    if package is None or package.origin is None:
        raise UsageError('Atari games need the emulator: pip install "ale-py>=0.12.1"')
    listing = Path(package.origin).parent / "roms" / "md5.json"
    games = {}
    for file_name in json.loads(listing.read_text()):
        rom = file_name.removesuffix(".bin")
        if rom not in _TWO_PLAYERS_ONLY:
            title = rom.title().replace("_", "")
            games[_fold(rom)] = Game(rom, f"ALE/{title}-v5", title)
    return dict(sorted(games.items(), key=lambda item: item[1].rom))


def _fold(name: str) -> str:
    """``MsPacman``, ``ms-pacman``, ``ALE/MsPacman-v5`` and ``MsPacmanNoFrameskip-v4`` become one word."""
    bare = _SUFFIX.sub("", name.strip())
    if bare[:4].lower() == "ale/":
        bare = bare[4:]
    return re.sub(r"[-_ ]", "", bare).lower()


def game_names() -> tuple[str, ...]:
    """All playable games by ROM name, in alphabetical order."""
    return tuple(game.rom for game in _games().values())


def find_game(name: str) -> Game | None:
    """The game of that name in any spelling, or None."""
    return _games().get(_fold(name))


def resolve(name: str) -> Game:
    """The game of that name in any spelling; UsageError with close matches for any other."""
    game = find_game(name)
    if game is None:
        folded = {key: item.rom for key, item in _games().items()}
        near = suggest_game(name, folded)
        raise UsageError(f"There is no Atari game {name!r}; {len(folded)} games are known.{near}")
    return game


def suggest_game(name: str, folded: dict[str, str] | None = None) -> str:
    """A hint naming the nearest games, measured on folded names so that spelling does not hide them."""
    by_fold = folded if folded is not None else {key: item.rom for key, item in _games().items()}
    return suggest(_fold(name), by_fold.values()) or suggest(_fold(name), by_fold)
