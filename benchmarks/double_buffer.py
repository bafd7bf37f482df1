"""What double-buffered playing brings: steps a second of PPO's rollouts on Atari, with and without, in turn.

    python benchmarks/double_buffer.py --game pong --rounds 5

Prints the median of the ratios within a round; a busy machine spoils absolute figures, not those.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

from retrograd.build import Builder
from retrograd.build.builder import set_threads
from retrograd.build.halves import make_player
from retrograd.config import ConfigManager
from retrograd.training.collect import collect
from retrograd.training.run import Plan, Run


def rollouts(game: str, num_envs: int, double_buffered: bool, threads: int | None) -> Iterator[int]:
    """Plays without learning; each ``next`` is one vector step."""
    config = ConfigManager(None).compose(
        ["agent=ppo", f"env={game}", f"training.num_envs={num_envs}", f"training.double_buffered={double_buffered}"]
    )
    builder = Builder(config)
    set_threads(threads)
    envs = builder.environments()
    agent = builder.agent(envs.spec)
    plan = Plan(10**9, 4, 10**9, sync_every_steps=128 * num_envs)
    run = Run(plan, on_episode=lambda *_: None, on_update=lambda _: None)
    for _ in collect(agent, envs, run, make_player(agent, envs, run)):
        run.advance(num_envs)
        yield num_envs


def measure(steps: Any, count: int) -> float:
    begun = time.perf_counter()
    played = sum(next(steps) for _ in range(count))
    return played / (time.perf_counter() - begun)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=256, help="vector steps in each measurement")
    parser.add_argument("--torch-threads", type=int, default=None)
    options = parser.parse_args()
    kinds = {
        name: rollouts(options.game, options.num_envs, name == "halves", options.torch_threads)
        for name in ("plain", "halves")
    }
    for steps in kinds.values():
        measure(steps, 32)
    ratios = []
    for number in range(options.rounds):
        order = list(kinds) if number % 2 == 0 else list(kinds)[::-1]
        speed = {name: measure(kinds[name], options.steps) for name in order}
        ratios.append(speed["halves"] / speed["plain"])
        print(f"plain {speed['plain']:.0f} steps/s, double-buffered {speed['halves']:.0f}, ratio {ratios[-1]:.2f}")
    print(f"median ratio {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")


if __name__ == "__main__":
    main()
