"""One step of each optimizer on the weights of the Nature network, in turns: milliseconds and the ratio to fused Adam.

    python benchmarks/optimizers.py
    python benchmarks/optimizers.py --threads 2 --rounds 50
    python benchmarks/optimizers.py --processor-time           for a machine with other work on it, one thread

"one operation at a time" is the same optimizer with hardware.fused_optimizer=false.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from retrograd.core.types import ArraySpec
from retrograd.networks.kernels import KERNELS
from retrograd.networks.optimizers import make_optimizer
from retrograd.networks.q_network import make_q_network

SETTINGS: dict[str, Any] = {
    "lr": 2.5e-4,
    "adam_eps": 1.5e-4,
    "rmsprop_decay": 0.95,
    "rmsprop_momentum": 0.95,
    "rmsprop_eps": 0.01,
}
CASES = {
    "adam, fused": ("adam", True),
    "adam, one operation at a time": ("adam", False),
    "deepmind_rmsprop, fused": ("deepmind_rmsprop", True),
    "deepmind_rmsprop, one operation at a time": ("deepmind_rmsprop", False),
}


def make(name: str, fused: bool) -> torch.optim.Optimizer:
    network = make_q_network(ArraySpec((4, 84, 84), np.dtype(np.uint8)), 6, network="nature", channels_last=True)
    for param in network.parameters():
        param.grad = torch.randn_like(param)
    return make_optimizer(name, network, fused=fused, **SETTINGS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--steps", type=int, default=4, help="steps in each measurement")
    parser.add_argument("--processor-time", action="store_true", help="of the first thread, not of the wall's clock")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock: Callable[[], float] = time.thread_time if options.processor_time else time.perf_counter
    optimizers = {case: make(*what) for case, what in CASES.items()}
    seen: dict[str, list[float]] = {case: [] for case in CASES}
    for number in range(options.rounds + 1):
        for case, optimizer in optimizers.items():
            begun = clock()
            for _ in range(options.steps):
                optimizer.step()
            if number:  # the first round makes the moments
                seen[case].append((clock() - begun) / options.steps * 1000)
    print(f"{options.threads} threads, extension {'built' if KERNELS is not None else 'not built'}\n")
    print("| optimizer | ms/step | ÷ fused Adam |\n|---|---|---|")
    for case, times in seen.items():
        ratio = statistics.median(mine / adam for mine, adam in zip(times, seen["adam, fused"], strict=True))
        print(f"| {case} | {statistics.median(times):.2f} | {ratio:.2f} |")


if __name__ == "__main__":
    main()
