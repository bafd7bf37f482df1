"""What a run costs as it grows: number of games, batch size, frames in a stack, size of the replay.

    python benchmarks/scaling.py                              all tables, 3 rounds (about 40 minutes)
    python benchmarks/scaling.py --tables games batch --rounds 5
    python benchmarks/scaling.py --tables replay --largest 100000

Each measurement has a process of its own, a round measures every size once, and a ratio is taken within a round. One
update for every four steps throughout; PPO's rollouts have 1,024 steps whatever the number of games. The replay is
measured alone and full: what it takes to add a step of 8 rows and to sample 32 transitions must not depend on its size.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OURS = HERE / "contestants" / "ours.py"
REPLAY_SIZES = (10_000, 100_000, 1_000_000)


@dataclass(frozen=True)
class Case:
    """One measurement: a row of a table, and the row its ratio refers to."""

    label: str
    size: int
    reference: int
    command: tuple[str, ...] = field(compare=False)
    unit: str = "steps/s"


def training(algorithm: str, size: int, reference: int, warmup: int, steps: int, *overrides: str) -> Case:
    command = (str(OURS), algorithm, f"--warmup={warmup}", f"--steps={steps}", "--set", *overrides)
    return Case(algorithm, size, reference, command)


def games() -> list[Case]:
    counts = (1, 2, 4, 8, 16, 32, 64)
    cases = [training("dqn", n, 8, 1200, 1200, f"training.num_envs={n}") for n in counts]
    cases += [
        training("ppo", n, 8, 1024, 2048, f"training.num_envs={n}", f"agent.rollout_steps={1024 // n}") for n in counts
    ]
    return cases + [training("null", n, 8, 2000, 10_000, f"training.num_envs={n}") for n in counts]


def batches() -> list[Case]:
    return [training("dqn", size, 32, 1200, 800, f"agent.batch_size={size}") for size in (16, 32, 64, 128, 256, 512)]


def stacks() -> list[Case]:
    return [training("dqn", size, 4, 1200, 1200, f"agent.frame_stack={size}") for size in (1, 2, 3, 4)]


def replays(largest: int) -> list[Case]:
    sizes = [size for size in REPLAY_SIZES if size <= largest]
    return [
        Case(f"{kind} {verb}", size, sizes[0], (__file__, "--one-replay", kind, verb, str(size)), "calls/s")
        for kind in ("uniform", "prioritized")
        for verb in ("add", "sample")
        for size in sizes
    ]


def tables(largest: int) -> dict[str, list[Case]]:
    return {"games": games(), "batch": batches(), "stack": stacks(), "replay": replays(largest)}


def measure_replay(kind: str, verb: str, size: int, seconds: float = 3.0) -> dict[str, float]:
    """Calls a second on a full replay of stacked 84×84 frames in 8 rows."""
    import numpy as np

    from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
    from retrograd.replay import NStep, Prioritized, RawStorage, Replay, Uniform

    rows = 8
    spec = EnvSpec("noise", ArraySpec((4, 84, 84), np.dtype(np.uint8)), DiscreteActions(6), 4, 4)
    sampler = Prioritized() if kind == "prioritized" else Uniform()
    replay = Replay(RawStorage(spec, size, rows), sampler, NStep(1, 0.99), np.random.default_rng(0))
    rng = np.random.default_rng(1)
    screens = rng.integers(256, size=(64, rows, 84, 84), dtype=np.uint8)
    nobody = np.zeros(rows, bool)

    def step(t: int) -> Step:
        stacked = [np.stack([screens[(t + at + place) % 64] for place in range(4)], axis=1) for at in (0, 1)]
        action, reward = rng.integers(6, size=rows), np.ones(rows, np.float32)
        return Step(stacked[0], action, reward, nobody, nobody, nobody, stacked[1])

    steps = [step(t) for t in range(64)]
    added = 0
    while added * rows < size + 8 * rows:  # until it overwrites
        replay.add(steps[added % 64])
        added += 1

    def add(number: int) -> None:
        replay.add(steps[(added + number) % 64])

    def sample(number: int) -> None:
        batch = replay.sample(32, step=number)
        if kind == "prioritized":
            replay.update(batch.index, batch.weight)

    call, done, begun = {"add": add, "sample": sample}[verb], 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        call(done)
        done += 1
    return {"steps_per_second": done / (time.perf_counter() - begun)}


def measure(case: Case) -> float | None:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    answer = subprocess.run(
        [sys.executable, *case.command], capture_output=True, text=True, env=environment, check=False
    )
    if answer.returncode:
        print(f"  {case.label} {case.size}: {answer.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return float(json.loads(answer.stdout.strip().splitlines()[-1])["steps_per_second"])


def run(cases: list[Case], rounds: int) -> dict[Case, list[float | None]]:
    seen: dict[Case, list[float | None]] = defaultdict(list)
    for number in range(rounds):
        for case in cases if number % 2 == 0 else reversed(cases):
            seen[case].append(measure(case))
            print(f"  round {number + 1} {case.label:20s} {case.size:>8,} {seen[case][-1] or 0:10.1f}", file=sys.stderr)
    return {case: seen[case] for case in cases}


def rows(seen: dict[Case, list[float | None]]) -> list[dict[str, Any]]:
    """A figure for each case, and its median ratio to the reference size within a round."""
    by_name = {(case.label, case.size): runs for case, runs in seen.items()}
    lines = []
    for case, runs in seen.items():
        good = [speed for speed in runs if speed]
        reference = by_name[case.label, case.reference]
        ratios = [mine / other for mine, other in zip(runs, reference, strict=True) if mine and other]
        if good:
            lines.append({
                "what": case.label, "size": case.size, "speed": statistics.median(good), "unit": case.unit,
                "ratio": statistics.median(ratios) if ratios else None, "reference": case.reference,
            })  # fmt: skip
    return lines


def table(name: str, lines: list[dict[str, Any]]) -> str:
    text = [f"| what | {name} | speed | ÷ that at the reference |", "|---|---|---|---|"]
    for line in lines:
        ratio = "–" if line["ratio"] is None else f"{line['ratio']:.2f} (reference {line['reference']:,})"
        text.append(f"| {line['what']} | {line['size']:,} | {line['speed']:,.0f} {line['unit']} | {ratio} |")
    return "\n".join(text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=list(tables(0)), default=list(tables(0)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--largest", type=int, default=REPLAY_SIZES[-1], help="replay that is tried; a million take 7 GB"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="all figures as JSON")
    parser.add_argument("--one-replay", nargs=3, metavar=("KIND", "VERB", "SIZE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_replay:
        kind, verb, size = options.one_replay
        print(json.dumps(measure_replay(kind, verb, int(size))))
        return 0
    results = {}
    for name in options.tables:
        results[name] = rows(run(tables(options.largest)[name], options.rounds))
        print(table(name, results[name]), end="\n\n")
    if options.output:
        options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
