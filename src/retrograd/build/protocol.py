"""How the game is played: the config's protocol as the environments want it, and in words."""

from __future__ import annotations

import numpy as np

from retrograd.config import Config
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec
from retrograd.envs.games import find_game
from retrograd.envs.protocol import AtariProtocol


def atari_protocol(config: Config, *, training: bool) -> AtariProtocol:
    """Training may clip rewards and end at a lost life; evaluation plays full, unclipped games."""
    values = config["env_protocol"]
    return AtariProtocol(
        repeat_action_probability=values["repeat_action_probability"],
        frameskip=values["frameskip"],
        action_repeat=values["action_repeat"],
        max_pool=values["max_pool"],
        full_action_space=values["full_action_space"],
        noop_max=values["noop_max"],
        fire_reset=values["fire_reset"],
        terminal_on_life_loss=values["terminal_on_life_loss_train" if training else "terminal_on_life_loss_eval"],
        max_episode_frames=values["max_episode_frames" if training else "eval_max_episode_frames"],
        reward_clip=training and config["preset"]["reward_clip"],
        screen_size=values["screen_size"],
        frame_stack=config["agent"]["frame_stack"],
    )


def planned_spec(config: Config) -> EnvSpec:
    """What the environment will look like, without making it: exact for Atari, generous for boards and vectors."""
    protocol, name = config["env_protocol"], config["env"]["game_id"]
    if name.startswith("MinAtar/"):
        return EnvSpec(name, ArraySpec((10, 10, 10), np.dtype(np.bool_), 0.0, 1.0), DiscreteActions(6))
    if find_game(name) is None:
        return EnvSpec(name, ArraySpec((64,), np.dtype(np.float32)), DiscreteActions(18))
    shape = (config["agent"]["frame_stack"], protocol["screen_size"], protocol["screen_size"])
    obs = ArraySpec(shape, np.dtype(np.uint8), 0.0, 255.0)
    return EnvSpec(name, obs, DiscreteActions(18), shape[0], protocol["action_repeat"])


def describe_protocol(config: Config) -> str:
    """How the game is played, in words: it decides which scores may be compared."""
    protocol = config["env_protocol"]
    flicker = protocol["flicker_probability"]
    blank = f", frames blank with probability {flicker}" if flicker else ""
    if find_game(config["env"]["game_id"]) is None:
        return f"{config['env']['game_id']}: no Atari game, so no Atari step is applied{blank}"
    sticky = protocol["repeat_action_probability"]
    shown = "" if protocol["max_pool"] else ", the last frame alone"
    lives = "ends an episode for the learner" if protocol["terminal_on_life_loss_train"] else "is not signalled"
    return (
        f"{config['env']['game_id']}, {config.protocol}: "
        f"{f'sticky actions {sticky}' if sticky else 'no sticky actions'}, "
        f"action repeat {protocol['action_repeat']}{shown}, up to {protocol['noop_max']} no-ops, a lost life {lives}, "
        f"at most {protocol['max_episode_frames']} frames a game "
        f"({protocol['eval_max_episode_frames']} in evaluation){blank}; "
        f"track {config['track']}"
    )
