"""Recurrent PPO on CartPole without velocities, which cannot be balanced without a memory.

python examples/recurrent_ppo.py          # about a minute, near 500
python examples/recurrent_ppo.py --smoke  # two rollouts: seconds
"""

from __future__ import annotations

import argparse

import numpy as np

from retrograd.contrib import RecurrentPPO

SETTINGS = {
    "agent.hidden_size": 64,
    "agent.epochs": 6,
    "agent.clip_range": 0.2,
    "agent.value_clip": False,
    "agent.gae_lambda": 0.98,
    "agent.entropy_coef": 0.0,
    "agent.max_grad_norm": 1.0,
    "agent.eval_policy": "greedy",
    "preset.lr": 0.001,
    "training.normalize_observations": True,
    "training.normalize_rewards": True,
    "training.light_eval_every_frames": None,
    "training.full_eval_every_frames": None,
    "eval.record_video": False,
}
SMOKE = {"training.num_envs": 2, "agent.rollout_steps": 32, "eval.full_episodes": 2, "eval.num_envs": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=None, help="decisions to train for")
    parser.add_argument("--output", default="outputs", help="where the run folder goes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="the smallest run that does everything once")
    options = parser.parse_args()

    settings = {**SETTINGS, "output_dir": options.output, **(SMOKE if options.smoke else {})}
    agent = RecurrentPPO("retrograd/CartPoleNoVel-v0", settings, seed=options.seed)
    agent.learn(total_frames=options.steps or (128 if options.smoke else 60_000))
    scores = agent.evaluate(episodes=2 if options.smoke else 50)
    print(f"mean return of {scores['episodes']} games: {scores['mean_return']:.1f}; the run is in {agent.folder}")

    # playing by hand: the memory comes back with each action and is handed in with the next observation
    memory = None
    for position in (0.00, 0.01, 0.03):
        action, memory = agent.predict(np.array([position, 0.0], np.float32), memory)
        print(f"cart at {position:.2f}: push {'right' if action else 'left'}")


if __name__ == "__main__":
    main()
