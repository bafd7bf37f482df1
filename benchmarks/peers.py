"""Whole training runs beside other libraries: the same game, algorithm, settings and machine, taken in turns.

    python benchmarks/peers.py                                         ours alone, with its limits
    python benchmarks/peers.py --peers-venv ~/peers --output peers.json
    python benchmarks/peers.py --peers-venv ~/peers --algorithms dqn ppo --rounds 3
    python benchmarks/peers.py --peers-venv ~/peers --ours hardware.autocast=native     half precision for ours
    python benchmarks/peers.py --quick                                 compare ratios with the recorded ones

Each contestant plays in a process of its own. A round lets all of them play once, so that a busy machine hits all
alike; every other round goes the other way round. The ratio is taken within a round, and the table gives its median and
its range. In all value-based runs eight games, one update for every four steps (fewer would look fast), and ε 0.1.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import venv
from collections import defaultdict
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CONTESTANTS = HERE / "contestants"
RECORD = HERE / "recorded_ratios.json"
CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Contest:
    """One algorithm: who plays, and how many steps before and under the clock."""

    peers: tuple[str, ...]
    warmup: int
    steps: int
    limit: bool = False
    slow: tuple[str, ...] = ()  # whose clock runs for a quarter of the steps: they take as many seconds
    ours: tuple[str, ...] = ()  # further keys of our config

    def steps_of(self, who: str) -> int:
        return self.steps // 4 if who in self.slow else self.steps


CONTESTS = {
    "dqn": Contest(("sb3", "tianshou"), 1400, 1600, limit=True, slow=("tianshou",)),
    "qr_dqn": Contest(("sb3",), 1400, 1600),
    "rainbow": Contest(("tianshou",), 1400, 1200, limit=True, slow=("tianshou",)),
    "ppo": Contest(("sb3", "tianshou"), 1024, 3072, limit=True),
    "recurrent_ppo": Contest(("sb3",), 1024, 2048),
    "a2c": Contest(("sb3",), 1000, 4000),
    "null": Contest(("sb3", "emulator"), 2000, 12000),
    "null_ppo": Contest(("sb3", "emulator"), 2000, 12000),
}
TITLES = {"sb3": "Stable-Baselines3", "tianshou": "Tianshou", "limit": "limit", "emulator": "emulator alone"}
FALL = 0.15  # how much of a recorded ratio may be lost before the quick form says so
Figures = dict[str, float]


def play(who: str, algorithm: str, contest: Contest, peers_python: str | None) -> Figures | None:
    """One run of one contestant; None where it is not installed or fails, which is said."""
    ours = who in ("ours", "limit", "emulator")
    python = sys.executable if ours else peers_python
    if python is None:
        return None
    script = {"sb3": "sb3.py", "tianshou": "tianshou_.py"}.get(who, "ours.py")
    name = {"limit": f"limit_{algorithm}", "emulator": "emulator"}.get(who, algorithm)
    clock = f"--warmup={contest.warmup}", f"--steps={contest.steps_of(who)}"
    keys = ("--set", *contest.ours) if who in ("ours", "limit") else ()
    command = [python, str(CONTESTANTS / script), name, *clock, *keys]
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if answer.returncode:
        print(f"  {who} {algorithm}: {answer.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    figures: Figures = json.loads(answer.stdout.strip().splitlines()[-1])
    return figures


def compete(algorithm: str, contest: Contest, rounds: int, peers_python: str | None) -> dict[str, list[Figures | None]]:
    seen: dict[str, list[Figures | None]] = defaultdict(list)
    everybody = ["ours", *contest.peers, *(("limit",) if contest.limit else ())]
    for number in range(rounds):
        for who in everybody if number % 2 == 0 else reversed(everybody):
            figures = play(who, algorithm, contest, peers_python)
            seen[who].append(figures)
            if figures is not None:
                print(f"  round {number + 1} {algorithm:14s} {who:9s} {figures['steps_per_second']:8.1f} steps/s",
                      file=sys.stderr)  # fmt: skip
    return dict(seen)


def summarize(seen: dict[str, list[Figures | None]]) -> dict[str, dict[str, Any]]:
    """Medians, and the ratio ours / other within each round."""
    summary: dict[str, dict[str, Any]] = {}
    for who, runs in seen.items():
        good = [run for run in runs if run is not None]
        if not good:
            continue
        pairs = [(mine, other) for mine, other in zip(seen["ours"], runs, strict=True) if mine and other]
        ratios = sorted(mine["steps_per_second"] / other["steps_per_second"] for mine, other in pairs)
        summary[who] = {
            "steps_per_second": statistics.median(run["steps_per_second"] for run in good),
            "peak_gb": max(run["peak_gb"] for run in good),
            "ours_over_this": statistics.median(ratios),
            "lowest": ratios[0],
            "highest": ratios[-1],
            "rounds": len(ratios),
        }
    return summary


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    lines = ["| algorithm | who | steps/s | ours ÷ this (range) | peak GB |", "|---|---|---|---|---|"]
    for algorithm, summary in results.items():
        for who, row in summary.items():
            title = "**Retrograd**" if who == "ours" else TITLES[who]
            ratio = (
                "1" if who == "ours" else f"{row['ours_over_this']:.2f} ({row['lowest']:.2f} to {row['highest']:.2f})"
            )
            speed, peak = row["steps_per_second"], row["peak_gb"]
            lines.append(f"| {algorithm} | {title} | {speed:,.0f} | {ratio} | {peak:.2f} |")
    return "\n".join(lines)


def where_time_goes(ours: dict[str, list[Figures | None]]) -> str:
    """The shares of our own runs' time; what is missing to 1 is logging and the loop itself."""
    phases = ("emulate", "act", "sample", "update")
    lines = ["| ours | " + " | ".join(phases) + " |", "|---" * (len(phases) + 1) + "|"]
    for name, seen in ours.items():
        runs = [run for run in seen if run and "act_share" in run]
        if runs:
            shares = [statistics.median(run[f"{phase}_share"] for run in runs) for phase in phases]
            lines.append(f"| {name} | " + " | ".join(f"{share:.2f}" for share in shares) + " |")
    return "\n".join(lines)


def draw(results: dict[str, dict[str, dict[str, Any]]], path: Path) -> None:
    """Bars of steps a second, one group for each algorithm."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    colors = {"ours": "#0072B2", "sb3": "#E69F00", "tianshou": "#009E73", "limit": "#BBBBBB", "emulator": "#BBBBBB"}
    names = [name for name in results if not name.startswith("null")]
    figure, axes = pyplot.subplots(figsize=(9, 3.6), layout="constrained")
    for column, name in enumerate(names):
        shown = list(results[name].items())
        for place, (who, row) in enumerate(shown):
            left = column + (place - (len(shown) - 1) / 2) * 0.22
            first = who not in axes.get_legend_handles_labels()[1]
            bar = axes.bar(left, row["steps_per_second"], 0.2, color=colors[who], label=who if first else None)
            axes.bar_label(bar, fmt="%.0f", fontsize=7)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(handles, [{"ours": "Retrograd", **TITLES}[label] for label in labels], frameon=False)
    axes.set_xticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylabel("agent steps a second")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def machine() -> str:
    """Which record is to be compared with: a ratio to the limit depends on processor, cores and torch."""
    told = dict[str, str]()
    if CPUINFO.is_file():
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
        told = dict(map(str.strip, line.split(":", 1)) for line in reversed(lines) if ":" in line)  # the first one's
    family = f"family {told['cpu family']} model {told['model']}" if {"cpu family", "model"} <= set(told) else ""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = " ".join(f"{told.get('model name') or platform.machine()} {family}".split())
    return f"{name}, {cores} cores, torch {version('torch')}"


def recorded() -> dict[str, dict[str, dict[str, float]]]:
    """Ratios by machine, algorithm and contestant."""
    if not RECORD.is_file():
        return {}
    records: dict[str, dict[str, dict[str, float]]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return records


def record(results: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Beside what other machines have recorded, in place of what this one had for these algorithms."""
    ratios = {name: {who: row["ours_over_this"] for who, row in summary.items()} for name, summary in results.items()}
    records = recorded()
    records[machine()] = records.get(machine(), {}) | ratios
    RECORD.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


def fallen(results: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """Ratios that lie clearly below those recorded on this machine."""
    recorded_here = recorded()[machine()]
    lines = []
    for algorithm, summary in results.items():
        for who, row in summary.items():
            before = recorded_here.get(algorithm, {}).get(who)
            if before is not None and row["ours_over_this"] < before * (1 - FALL):
                lines.append(f"{algorithm}: ours ÷ {who} was {before:.2f}, is {row['ours_over_this']:.2f}")
    return lines


def shorter(contest: Contest) -> Contest:
    """For the quick form: half of the steps."""
    return replace(contest, steps=contest.steps // 2)


def better(row: dict[str, Any], again: dict[str, Any] | None) -> dict[str, Any]:
    return row if again is None or again["ours_over_this"] <= row["ours_over_this"] else again


def peers_python(folder: str | None) -> str | None:
    if folder is None:
        return None
    python = Path(folder) / "bin" / "python"
    if not python.exists():
        print(f"making {folder} (a few minutes)", file=sys.stderr)
        venv.create(folder, with_pip=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        constraints = HERE.parent / "constraints.txt"
        torch = next(
            line for line in constraints.read_text(encoding="utf-8").splitlines() if line.startswith("torch==")
        )
        subprocess.run([*install, torch], check=True)
        for line in (HERE / "requirements-peers.txt").read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):  # one by one: a library that does not install stops no other
                subprocess.run([*install, line], check=False)
    return str(python)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers-venv", metavar="DIR", help="environment of the other libraries; made if missing")
    parser.add_argument("--algorithms", nargs="+", choices=list(CONTESTS), default=list(CONTESTS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ours", nargs="+", default=[], metavar="key=value", help="of our config, its limits too")
    parser.add_argument("--output", type=Path, metavar="FILE", help="all figures as JSON")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="bars as PNG or SVG")
    parser.add_argument(
        "--record", action="store_true", help="keep these ratios for later quick comparisons on this machine"
    )
    parser.add_argument("--quick", action="store_true", help="ours against its limits, compared with the record")
    options = parser.parse_args()
    names = ["dqn", "rainbow", "ppo", "null"] if options.quick else options.algorithms
    rounds = 1 if options.quick else options.rounds
    python = peers_python(options.peers_venv)
    contests = {name: replace(CONTESTS[name], ours=tuple(options.ours)) for name in names}
    if options.quick:
        contests = {name: shorter(contest) for name, contest in contests.items()}
    raw = {name: compete(name, contest, rounds, python) for name, contest in contests.items()}
    results = {name: summarize(seen) for name, seen in raw.items()}
    about = {"machine": machine(), "python": platform.python_version(), "rounds": rounds, "ours": options.ours}
    if options.output:
        options.output.write_text(json.dumps({"about": about, "summary": results, "runs": raw}, indent=1) + "\n")
    if options.picture:
        draw(results, options.picture)
    shares = where_time_goes({name: seen["ours"] for name, seen in raw.items()})
    print(table(results), shares, sep="\n\n")
    if options.record:
        record(results)
    elif options.quick and machine() not in recorded():
        print(f"nothing has been recorded on {machine()} to compare with; --record keeps these ratios", file=sys.stderr)
        return 2
    elif options.quick:
        doubtful = {line.split(":")[0] for line in fallen(results)}
        for name in doubtful:  # one round may have met a busy moment: whatever fell gets a second one
            again = summarize(compete(name, contests[name], 2, python))
            results[name] = {who: better(row, again.get(who)) for who, row in results[name].items()}
        lines = fallen(results)
        print("\n".join(lines) or f"nothing fell by more than {FALL:.0%}")
        return 1 if lines else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
