"""Updates with oneDNN's and with torch's own products, in turns on a batch of a run: milliseconds and their ratio.

    python benchmarks/products.py
    python benchmarks/products.py --algorithms dqn rainbow --rounds 30

What hardware.onednn_linear changes on this machine; nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from torch import nn

from retrograd.build.hardware import onednn_is_faster
from retrograd.core.protocols import Agent
from retrograd.networks.products import use_onednn

sys.path.insert(0, str(Path(__file__).parent / "contestants"))
from ours import first_batches, make

ALGORITHMS = {"dqn": 10, "qr_dqn": 10, "rainbow": 5, "ppo": 1, "a2c": 10}  # updates in each measurement


def measure(agent: Agent, batch: Any, step: int, updates: int, *, onednn: bool) -> float:
    """Milliseconds of one update."""
    for part in agent.parts.values():
        if isinstance(part, nn.Module):
            use_onednn(part, onednn)
    agent.update(batch, step=step)  # what was in the caches is no one's
    begun = time.perf_counter()
    for _ in range(updates):
        agent.update(batch, step=step)
    return (time.perf_counter() - begun) / updates * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS), metavar="ALGORITHM")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"hardware.onednn_linear=null means {str(onednn_is_faster()).lower()} here\n")
    print("| algorithm | ms an update, torch | oneDNN | torch ÷ oneDNN (range) |\n|---|---|---|---|", flush=True)
    for algorithm in options.algorithms:
        with tempfile.TemporaryDirectory() as folder:
            trainer = make(algorithm, folder)
            batch, step = first_batches(trainer)[-1]
            times: dict[bool, list[float]] = {False: [], True: []}
            for number in range(options.rounds):
                for onednn in (False, True) if number % 2 else (True, False):
                    times[onednn].append(measure(trainer.agent, batch, step, ALGORITHMS[algorithm], onednn=onednn))
            trainer.close()
        ratios = [torchs / ours for torchs, ours in zip(times[False], times[True], strict=True)]
        torchs, ours, ratio = (statistics.median(values) for values in (times[False], times[True], ratios))
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"| {algorithm} | {torchs:.1f} | {ours:.1f} | {ratio:.2f} ({spread}) |", flush=True)


if __name__ == "__main__":
    main()
