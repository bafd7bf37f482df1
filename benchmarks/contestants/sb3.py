"""Stable-Baselines3 and sb3-contrib with their own Atari wrappers, the way their documentation starts them."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import torch
from sb3_contrib import QRDQN, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env
from stable_baselines3.common.vec_env import VecEnv, VecFrameStack
from stopwatch import Stopwatch, arguments

gymnasium.register_envs(ale_py)


class Clock(BaseCallback):
    def __init__(self, watch: Stopwatch) -> None:
        super().__init__()
        self.watch = watch

    def _on_step(self) -> bool:
        return self.watch.tell(self.num_timesteps)


def environments(count: int) -> VecEnv:
    game = {"frameskip": 1, "repeat_action_probability": 0.0}
    return VecFrameStack(make_atari_env("ALE/Pong-v5", n_envs=count, seed=0, env_kwargs=game), 4)


def make(algorithm: str) -> Any:
    off_policy: dict[str, Any] = {
        "buffer_size": 100_000,
        "learning_starts": 1000,
        "batch_size": 32,
        "train_freq": 1,  # in steps of all games together: two updates for eight steps, as everywhere here
        "gradient_steps": 2,
        "target_update_interval": 10_000,
        "exploration_initial_eps": 0.1,
        "exploration_final_eps": 0.1,
    }
    ppo: dict[str, Any] = {
        "n_steps": 128,
        "batch_size": 256,
        "n_epochs": 4,
        "learning_rate": 2.5e-4,
        "clip_range": 0.1,
        "clip_range_vf": 0.1,
        "ent_coef": 0.01,
    }
    match algorithm:
        case "dqn":
            return DQN("CnnPolicy", environments(8), **off_policy)
        case "qr_dqn":
            return QRDQN("CnnPolicy", environments(8), **off_policy)
        case "ppo":
            return PPO("CnnPolicy", environments(8), **ppo)
        case "recurrent_ppo":
            one_memory = {"shared_lstm": True, "enable_critic_lstm": False, "lstm_hidden_size": 256}
            return RecurrentPPO("CnnLstmPolicy", environments(8), policy_kwargs=one_memory, **ppo)
        case "a2c":
            return A2C("CnnPolicy", environments(16), ent_coef=0.01, vf_coef=0.25)
        case "null_ppo":
            return _without_learner(PPO("CnnPolicy", environments(8), **ppo))
        case _:
            # no learner: the loop alone, whose updates never begin; until then it plays at random
            return DQN("CnnPolicy", environments(8), buffer_size=1000, learning_starts=10**9, batch_size=32)


def _without_learner(model: Any) -> Any:
    """The loop alone: rollouts are filled at random and thrown away."""
    rows, actions = model.n_envs, int(model.action_space.n)
    nothing = torch.zeros(rows, 1), torch.zeros(rows)
    model.policy.forward = lambda obs: (torch.randint(actions, (rows,)), *nothing)
    model.train = lambda: None
    return model


if __name__ == "__main__":
    name, stopwatch = arguments(["dqn", "qr_dqn", "ppo", "recurrent_ppo", "a2c", "null", "null_ppo"])
    make(name).learn(10**9, callback=Clock(stopwatch))
    stopwatch.report()
