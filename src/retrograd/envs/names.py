"""From what a user types to a name and a Gymnasium id."""

from __future__ import annotations

from retrograd.envs.games import find_game


def find_environment(name: str) -> tuple[str, str]:
    """``ms_pacman`` → (ms_pacman, ALE/MsPacman-v5); any Gymnasium id or short name → (name, id)."""
    game = find_game(name)
    if game is not None:
        return game.rom, game.game_id
    from retrograd.envs.factory import resolve_env_id  # Gymnasium is loaded only when it is needed

    return name, resolve_env_id(name)
