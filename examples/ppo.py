"""PPO on an Atari game, then a look at what it learned.

python examples/ppo.py                    # Pong, ten million steps: hours
python examples/ppo.py --smoke            # CartPole, two rollouts: seconds
"""

from __future__ import annotations

import argparse

from retrograd import PPO

SMOKE = {
    "training.num_envs": 2,
    "agent.rollout_steps": 32,
    "eval.full_episodes": 2,
    "eval.num_envs": 2,
    "eval.record_video": False,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default=None, help="a game or a Gymnasium id")
    parser.add_argument("--frames", type=int, default=None, help="emulator frames to train for")
    parser.add_argument("--output", default="outputs", help="where the run folder goes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="the smallest run that does everything once")
    options = parser.parse_args()

    env = options.env or ("CartPole-v1" if options.smoke else "pong")
    frames = options.frames or (128 if options.smoke else 40_000_000)
    agent = PPO(env, {"output_dir": options.output, **(SMOKE if options.smoke else {})}, seed=options.seed)
    agent.learn(total_frames=frames)
    scores = agent.evaluate(episodes=2 if options.smoke else 30)
    print(f"mean return of {scores['episodes']} games: {scores['mean_return']:.1f}; the run is in {agent.folder}")


if __name__ == "__main__":
    main()
