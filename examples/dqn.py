"""DQN from Python: train, score, act, save and load.

python examples/dqn.py                     Pong, 200,000 frames
python examples/dqn.py --smoke             a tiny run that ends in seconds
python examples/dqn.py --env breakout --frames 2000000
"""

from __future__ import annotations

import argparse

from retrograd import DQN

SMOKE = {
    "training.num_envs": 2,
    "training.warmup_random_steps": 200,
    "agent.replay_start_size": 200,
    "replay.capacity": 2000,
    "env_protocol.eval_max_episode_frames": 400,
    "eval.num_envs": 2,
    "eval.full_episodes": 2,
    "eval.record_video": False,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="pong", help="a game in any spelling, or a Gymnasium id")
    parser.add_argument("--frames", type=int, default=200_000, help="emulator frames to train for")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", default="outputs")
    parser.add_argument("--smoke", action="store_true", help="a tiny run, to see that everything works")
    options = parser.parse_args()

    config = SMOKE if options.smoke else {"training.warmup_random_steps": 10_000, "agent.replay_start_size": 10_000}
    frames = 2_000 if options.smoke else options.frames
    model = DQN(options.env, config, seed=options.seed, output_dir=options.output)
    model.learn(total_frames=frames)
    print("run folder:", model.folder)

    scores = model.evaluate(episodes=2 if options.smoke else 10)
    print(f"mean score {scores['mean_return']:.1f}, human-normalized {scores['human_normalized']}")

    again = DQN.load(model.folder)
    print("loaded again, mean score", again.evaluate(episodes=2)["mean_return"])


if __name__ == "__main__":
    main()
