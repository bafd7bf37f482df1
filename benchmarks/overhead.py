"""What the framework itself costs: whole runs with a learner that does nothing, beside the bare emulator.

    python benchmarks/overhead.py                                  ours and the emulator
    python benchmarks/overhead.py --peers-venv ~/peers --rounds 5  Stable-Baselines3's loops beside them
    python benchmarks/overhead.py --peers-venv ~/peers --output overhead.json

Three loops on 8 games of Pong with random actions, each in a process of its own, in turns: the emulator's vector
environment as ale-py ships it; a run that fills a replay and samples from it; a run that fills rollouts. Ours is
``training.null_learner=true``, with logs, gates and all. Stable-Baselines3's never begin to update, and choose their
actions at random, too. With a GPU that learns in a millisecond this is the figure that matters.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from peers import Contest, Figures, peers_python, play, where_time_goes

# who plays what: the row of the table, the contestant, its algorithm
ROWS = {
    "emulator alone": ("emulator", "null"),
    "ours, replay": ("ours", "null"),
    "Stable-Baselines3, replay": ("sb3", "null"),
    "ours, rollouts": ("ours", "null_ppo"),
    "Stable-Baselines3, rollouts": ("sb3", "null_ppo"),
}
OURS_AND_PEER = {
    "ours, replay": "Stable-Baselines3, replay",
    "ours, rollouts": "Stable-Baselines3, rollouts",
}
SHARE_FLOOR, PEER_FLOOR = 0.85, 2.0
Rounds = dict[str, list[Figures | None]]


def measure(rounds: int, warmup: int, steps: int, python: str | None) -> Rounds:
    seen: Rounds = defaultdict(list)
    for number in range(rounds):
        # every second round in the other order: whoever comes first finds another machine than whoever comes last
        order = list(ROWS) if number % 2 == 0 else list(ROWS)[::-1]
        for row in order:
            who, algorithm = ROWS[row]
            figures = play(who, algorithm, Contest((), warmup, steps), python)
            seen[row].append(figures)
            if figures is not None:
                print(f"  round {number + 1} {row:28s} {figures['steps_per_second']:8.0f} steps/s", file=sys.stderr)
    return dict(seen)


def ratios(seen: Rounds, above: str, below: str) -> list[float]:
    """Ratios within a round, lowest first."""
    pairs = zip(seen[above], seen[below], strict=True)
    return sorted(one["steps_per_second"] / two["steps_per_second"] for one, two in pairs if one and two)


def spread(found: list[float]) -> str:
    return f"{statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})" if found else "–"


def table(seen: Rounds) -> str:
    lines = ["| loop | steps/s | share of the emulator's | ours ÷ this | peak GB |", "|---|---|---|---|---|"]
    for row, runs in seen.items():
        good = [run for run in runs if run is not None]
        if not good:
            continue
        ours = next((mine for mine, peer in OURS_AND_PEER.items() if peer == row), None)
        share = "1" if row == "emulator alone" else spread(ratios(seen, row, "emulator alone"))
        speed = statistics.median(run["steps_per_second"] for run in good)
        peak = max(run["peak_gb"] for run in good)
        lines.append(
            f"| {row} | {speed:,.0f} | {share} | {spread(ratios(seen, ours, row)) if ours else '–'} | {peak:.2f} |"
        )
    return "\n".join(lines)


def verdicts(seen: Rounds) -> list[str]:
    lines = []
    for ours, peer in OURS_AND_PEER.items():
        for other, floor, name in (("emulator alone", SHARE_FLOOR, "the emulator"), (peer, PEER_FLOOR, peer)):
            found = ratios(seen, ours, other)
            if found:
                word = "reached" if statistics.median(found) >= floor else "NOT reached"
                lines.append(f"{ours} ÷ {name}: {statistics.median(found):.2f}, floor {floor:g}: {word}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-venv", metavar="DIR", help="environment of the other libraries; made if missing")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=3000, help="steps before the clock starts")
    parser.add_argument("--steps", type=int, default=16000, help="steps that are measured in a round")
    parser.add_argument("--output", type=Path, metavar="FILE", help="all figures as JSON")
    options = parser.parse_args()
    seen = measure(options.rounds, options.warmup, options.steps, peers_python(options.peers_venv))
    if options.output:
        options.output.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    shares = where_time_goes({row: seen[row] for row in OURS_AND_PEER})
    print(table(seen), shares, "\n".join(verdicts(seen)), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
