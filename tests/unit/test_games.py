"""Names of games."""

import subprocess
import sys

import pytest

from retrograd.core.errors import UsageError
from retrograd.envs.games import Game, game_names, resolve
from retrograd.envs.protocol import AtariProtocol


@pytest.mark.parametrize(
    "name",
    ["ms_pacman", "MsPacman", "ms-pacman", "ALE/MsPacman-v5", "MsPacmanNoFrameskip-v4", "MsPacman-v0",
     "MsPacmanDeterministic-v4", "MSPACMAN", "ale/mspacman-v5", " ms pacman "],
)  # fmt: skip
def test_every_spelling_leads_to_one_game(name):
    assert resolve(name) == Game("ms_pacman", "ALE/MsPacman-v5", "MsPacman")


def test_names_are_the_registered_ones():
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    registered = {env_id for env_id in gymnasium.registry if env_id.startswith("ALE/")}
    assert {resolve(name).game_id for name in game_names()} == registered
    assert len(game_names()) == 104
    for env_id in registered:
        assert resolve(env_id).game_id == env_id


@pytest.mark.parametrize(
    ("name", "near"),
    [("pnog", "pong"), ("breakot", "breakout"), ("SpaceInvader", "space_invaders"), ("qbertt", "qbert"),
     ("mspackman", "ms_pacman"), ("Sequest-v5", "seaquest"), ("montezuma", "montezuma_revenge"),
     ("ALE/Pongg-v5", "pong"), ("enduroo", "enduro"), ("asterixx", "asterix")],
)  # fmt: skip
def test_wrong_name_gets_close_matches(name, near):
    with pytest.raises(UsageError) as error:
        resolve(name)
    assert repr(name) in str(error.value)
    assert repr(near) in str(error.value)


def test_cartridges_for_two_players_are_no_games():
    with pytest.raises(UsageError):
        resolve("combat")


def test_import_is_light():
    code = (
        "import sys, retrograd.envs.games as games; games.resolve('pong'); "
        "sys.exit(bool({'gymnasium', 'torch', 'ale_py', 'cv2'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize(
    ("setting", "message"),
    [({"frameskip": 4}, "action_repeat"), ({"action_repeat": 5}, "1 to 4"), ({"frame_stack": 0}, "1 to 4"),
     ({"repeat_action_probability": 1.5}, r"\[0, 1\)"), ({"noop_max": -1}, "noop_max is -1"),
     ({"screen_size": 84.0}, "whole number"), ({"max_episode_frames": None}, "max_episode_frames is None")],
)  # fmt: skip
def test_protocol_refuses_what_cannot_be(setting, message):
    with pytest.raises(UsageError, match=message):
        AtariProtocol(**setting)
