"""Updates with a switch of ``hardware`` off and on, in turns on a batch of a run: milliseconds and their ratio.

    python benchmarks/switches.py onednn_linear
    python benchmarks/switches.py bfloat16 --algorithms dqn ppo --rounds 30

What the switch changes on this machine; nothing else may run meanwhile.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from retrograd.core.protocols import Agent
from retrograd.networks.precision import set_precision
from retrograd.networks.products import use_onednn

sys.path.insert(0, str(Path(__file__).parent / "contestants"))
from ours import first_batches, make

ALGORITHMS = {"dqn": 10, "qr_dqn": 10, "rainbow": 5, "ppo": 1, "a2c": 10}  # updates in each measurement
Switch = Callable[[nn.Module, bool], None]
SWITCHES: dict[str, Switch] = {
    "onednn_linear": use_onednn,
    "bfloat16": lambda part, on: set_precision(part, "bfloat16" if on else None, torch.device("cpu")),
}


def measure(agent: Agent, batch: Any, step: int, updates: int, switch: Switch, *, on: bool) -> float:
    """Milliseconds of one update."""
    for part in agent.parts.values():
        if isinstance(part, nn.Module):
            switch(part, on)
    agent.update(batch, step=step)  # what was in the caches is no one's
    begun = time.perf_counter()
    for _ in range(updates):
        agent.update(batch, step=step)
    return (time.perf_counter() - begun) / updates * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("switch", choices=SWITCHES)
    parser.add_argument("--algorithms", nargs="+", choices=ALGORITHMS, default=list(ALGORITHMS), metavar="ALGORITHM")
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    print(f"| algorithm | ms an update | with {options.switch} | off ÷ on (range) |\n|---|---|---|---|", flush=True)
    for algorithm in options.algorithms:
        with tempfile.TemporaryDirectory() as folder:
            trainer = make(algorithm, folder)
            batch, step = first_batches(trainer)[-1]
            times: dict[bool, list[float]] = {False: [], True: []}
            for number in range(options.rounds):
                for on in (False, True) if number % 2 else (True, False):
                    updates, switch = ALGORITHMS[algorithm], SWITCHES[options.switch]
                    times[on].append(measure(trainer.agent, batch, step, updates, switch, on=on))
            trainer.close()
        ratios = [off / on for off, on in zip(times[False], times[True], strict=True)]
        off, on_, ratio = (statistics.median(values) for values in (times[False], times[True], ratios))
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"| {algorithm} | {off:.1f} | {on_:.1f} | {ratio:.2f} ({spread}) |", flush=True)


if __name__ == "__main__":
    main()
