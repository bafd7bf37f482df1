"""Rainbow from Python, and its parts as switches.

python examples/rainbow.py                          Space Invaders, 200,000 frames
python examples/rainbow.py --smoke                  a tiny run that ends in seconds
python examples/rainbow.py --without noisy          Rainbow less one part
"""

from __future__ import annotations

import argparse
from typing import Any

from retrograd import Rainbow

WITHOUT: dict[str, dict[str, Any]] = {
    "double": {"agent.double": False},
    "dueling": {"agent.network": "nature"},
    "n_step": {"agent.n_step": 1},
    "noisy": {"agent.noisy": False},
    "distributional": {"agent.distributional": None},
    "prioritized": {"replay.prioritized": False},
}
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
    parser.add_argument("--env", default="space_invaders", help="a game in any spelling, or a Gymnasium id")
    parser.add_argument("--frames", type=int, default=200_000, help="emulator frames to train for")
    parser.add_argument("--without", choices=WITHOUT, help="a part to leave out")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--output", default="outputs")
    parser.add_argument("--smoke", action="store_true", help="a tiny run, to see that everything works")
    options = parser.parse_args()

    config = SMOKE if options.smoke else {"training.warmup_random_steps": 10_000, "agent.replay_start_size": 10_000}
    config = {**config, **WITHOUT.get(options.without, {})}
    model = Rainbow(options.env, config, seed=options.seed, output_dir=options.output)
    model.learn(total_frames=1_200 if options.smoke else options.frames)
    scores = model.evaluate(episodes=2 if options.smoke else 10)
    print(f"run folder {model.folder}: mean score {scores['mean_return']:.1f}")


if __name__ == "__main__":
    main()
