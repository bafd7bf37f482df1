"""Tianshou, from its own Atari networks and trainers; EnvPool emulates, its choice where that is installed."""

from __future__ import annotations

from typing import Any

import envpool
import torch
from stopwatch import Stopwatch, arguments
from tianshou.algorithm import DQN, PPO, RainbowDQN
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, PrioritizedVectorReplayBuffer, VectorReplayBuffer
from tianshou.env.atari.atari_network import DQNet, RainbowNet, ScaledObsInputActionReprNet, layer_init
from tianshou.trainer import OffPolicyTrainerParams, OnPolicyTrainerParams
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

ROWS = 8
RANDOM_STEPS = 1000  # that fill a buffer before anything is learned


class Enough(Exception):
    """The clock has seen enough; a trainer has no other way to be stopped between its steps."""


def run(algorithm: str, watch: Stopwatch) -> None:
    game = {"stack_num": 4, "reward_clip": True, "episodic_life": True}
    envs = envpool.make_gymnasium("Pong-v5", num_envs=ROWS, seed=0, **game)

    uncounted = 0 if algorithm == "ppo" else RANDOM_STEPS  # its trainer counts from the first step that learns

    def tell(epoch: int, step: int) -> None:
        if not watch.tell(uncounted + step):
            raise Enough

    schedule: dict[str, Any] = {"max_epochs": 1000, "epoch_num_steps": 10**7, "training_fn": tell, "verbose": False}
    schedule |= {"show_progress": False, "test_collector": None}
    make = _ppo if algorithm == "ppo" else _value
    learner, params = make(algorithm, envs, schedule)
    try:
        learner.run_training(params)
    except Enough:
        envs.close()


def _value(name: str, envs: Any, schedule: dict[str, Any]) -> tuple[Any, Any]:
    shape, actions = envs.observation_space.shape, envs.action_space.n
    frames = {"ignore_obs_next": True, "save_only_last_obs": True, "stack_num": 4}
    optimizer = AdamOptimizerFactory(lr=1e-4)
    if name == "dqn":
        net = ScaledObsInputActionReprNet(DQNet(*shape, action_shape=actions))
        policy: Any = DiscreteQLearningPolicy(model=net, action_space=envs.action_space, eps_training=0.1)
        learner: Any = DQN(policy=policy, optim=optimizer, target_update_freq=2500, is_double=False)
        buffer: Any = VectorReplayBuffer(100_000, ROWS, **frames)
    else:
        rainbow = RainbowNet(c=shape[0], h=shape[1], w=shape[2], action_shape=[actions])
        policy = C51Policy(model=ScaledObsInputActionReprNet(rainbow), action_space=envs.action_space)
        learner = RainbowDQN(policy=policy, optim=optimizer, n_step_return_horizon=3, target_update_freq=1000)
        buffer = PrioritizedVectorReplayBuffer(100_000, ROWS, alpha=0.6, beta=0.4, **frames)
    collector = Collector(policy, envs, buffer, exploration_noise=True)
    collector.reset()
    collector.collect(n_step=RANDOM_STEPS - RANDOM_STEPS % ROWS, random=True)
    params = OffPolicyTrainerParams(
        training_collector=collector,
        collection_step_num_env_steps=ROWS,
        update_step_num_gradient_steps_per_sample=0.25,
        batch_size=32,
        **schedule,
    )
    return learner, params


def _ppo(name: str, envs: Any, schedule: dict[str, Any]) -> tuple[Any, Any]:
    shape, actions = envs.observation_space.shape, envs.action_space.n
    trunk = DQNet(*shape, action_shape=actions, features_only=True, output_dim_added_layer=512, layer_init=layer_init)
    net = ScaledObsInputActionReprNet(trunk)
    actor = DiscreteActor(preprocess_net=net, action_shape=actions, softmax_output=False)
    policy = ProbabilisticActorPolicy(
        actor=actor,
        dist_fn=_categorical,
        action_space=envs.action_space,
        action_scaling=False,
        action_bound_method=None,
    )
    learner = PPO(
        policy=policy,
        critic=DiscreteCritic(preprocess_net=net),
        optim=AdamOptimizerFactory(lr=2.5e-4, eps=1e-5),
        eps_clip=0.1,
        value_clip=True,
        max_grad_norm=0.5,
        gae_lambda=0.95,
    )
    buffer = VectorReplayBuffer(128 * ROWS, ROWS, ignore_obs_next=True, save_only_last_obs=True, stack_num=4)
    collector = Collector(policy, envs, buffer)
    collector.reset()
    params = OnPolicyTrainerParams(
        training_collector=collector,
        collection_step_num_env_steps=128 * ROWS,
        update_step_num_repetitions=4,
        batch_size=256,
        **schedule,
    )
    return learner, params


def _categorical(logits: Any) -> Any:
    return torch.distributions.Categorical(logits=logits)


if __name__ == "__main__":
    algorithm_name, stopwatch = arguments(["dqn", "rainbow", "ppo"])
    run(algorithm_name, stopwatch)
    stopwatch.report()
