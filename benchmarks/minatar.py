"""The MinAtar table of docs/results/minatar.md: five games × four agents × five seeds, from one command.

    python benchmarks/minatar.py                              everything; finished runs are kept, so it may be stopped
    python benchmarks/minatar.py --games breakout --agents dqn rainbow --seeds 1 --frames 20000 \\
        --page try.md --record try.jsonl
    python benchmarks/minatar.py --table-only                 the page again, from the runs that are recorded

A run's score is the mean of its final evaluation: 100 games with ε 0.001. In training ε falls over the first half of
the run. What a finished run came to goes into the record, which is kept beside the page: whoever has it need not
run it again. Needs the extra "minatar".
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from retrograd.core.statistics import Interval, bootstrap_interval, iqm, probability_of_improvement, score_matrix

GAMES = ("breakout", "asterix", "space_invaders", "freeway", "seaquest")
AGENTS = ("dqn", "double", "c51", "rainbow")
NAMES = {"dqn": "DQN", "double": "Double DQN", "c51": "C51", "rainbow": "Rainbow", "random": "random play"}
RESAMPLES = 20_000
KEY = ("game", "agent", "frames", "seed")


@dataclass(frozen=True)
class Job:
    """One run, and the folder that tells whether it is finished."""

    game: str
    agent: str
    seed: int
    frames: int
    output: Path

    @property
    def folder(self) -> Path:
        return self.output / self.game / f"{self.agent}_{self.frames}_seed{self.seed}"

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.game, self.agent, self.frames, self.seed

    @property
    def finished(self) -> bool:
        return (self.folder / "summary.json").is_file()

    def outcome(self) -> dict[str, Any]:
        """What the finished run came to, for the record."""
        summary = json.loads((self.folder / "summary.json").read_text())
        git = json.loads((self.folder / "versions.json").read_text()).get("git") or {}
        return {
            **dict(zip(KEY, self.key, strict=True)),
            "score": summary["final"]["mean_return"],
            "deviation": summary["final"]["std_return"],
            "games": summary["final"]["episodes"],
            "steps_per_second": round(summary["step"] / summary["wall_seconds"], 1),
            "commit": f"{git.get('commit', 'unknown')[:10]}{' with changes' if git.get('dirty') else ''}",
        }

    def command(self) -> list[str]:
        if self.agent == "random":
            chosen = ["agent=random", "eval=minatar"]
        else:
            chosen = [f"agent=minatar_{self.agent}", f"preset.epsilon_decay_frames={self.frames // 2}"]
        return [
            *(sys.executable, "-m", "retrograd", "train", f"env=minatar_{self.game}", *chosen, f"seed={self.seed}"),
            f"training.total_env_frames={self.frames}",
            "training.light_eval_every_frames=null",
            "training.full_eval_every_frames=null",
            "hardware.torch_threads=1",
            f"output_dir={self.folder.parent}",
            f"run_name={self.folder.name}",
        ]

    def run(self) -> float:
        """Play it from the start; returns the seconds it took."""
        if self.folder.exists():
            shutil.rmtree(self.folder)  # what an interrupted attempt left
        begun = time.monotonic()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(self.command(), capture_output=True, text=True, env=environment, check=False)
        if done.returncode or not self.finished:
            raise RuntimeError(f"{' '.join(self.command())}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
        return time.monotonic() - begun


class Record:
    """A line for each finished run, never changed once written."""

    def __init__(self, file: Path) -> None:
        self.file = file
        lines = file.read_text().splitlines() if file.is_file() else []
        self.outcomes = {tuple(line[name] for name in KEY): line for line in map(json.loads, lines)}

    def __contains__(self, job: Job) -> bool:
        return job.key in self.outcomes

    def of(self, jobs: Sequence[Job]) -> list[dict[str, Any]]:
        return [self.outcomes[job.key] for job in jobs if job in self]

    def add(self, job: Job) -> dict[str, Any]:
        outcome = self.outcomes[job.key] = job.outcome()
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with self.file.open("a") as file:
            file.write(json.dumps(outcome) + "\n")
        return outcome


def jobs_for(options: argparse.Namespace) -> list[Job]:
    """Seed by seed, so that a table of fewer seeds is complete as early as possible."""
    learned = [
        Job(game, agent, seed, options.frames, options.output)
        for seed in range(1, options.seeds + 1)
        for game in options.games
        for agent in options.agents
    ]
    return [Job(game, "random", 1, 1000, options.output) for game in options.games] + learned


def work(jobs: Sequence[Job], record: Record, at_once: int) -> int:
    """Run what is not recorded; returns how many failed."""
    for job in jobs:
        if job not in record and job.finished:
            record.add(job)
    missing = [job for job in jobs if job not in record]
    print(f"{len(jobs) - len(missing)} of {len(jobs)} runs are finished, {len(missing)} to go", file=sys.stderr)
    failed, begun = 0, time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        running = {pool.submit(job.run): job for job in missing}
        try:
            for number, future in enumerate(as_completed(running), start=1):
                job = running[future]
                left = (time.monotonic() - begun) / number * (len(missing) - number)
                head = (
                    f"[{number}/{len(missing)}, about {left / 3600:.1f} h left] {job.game} {job.agent} seed {job.seed}"
                )
                if future.exception() is not None:
                    failed += 1
                    print(f"{head}: FAILED\n{future.exception()}", file=sys.stderr)
                    continue
                print(f"{head}: {record.add(job)['score']:.2f} in {future.result():.0f} s", file=sys.stderr)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def collect(outcomes: Sequence[dict[str, Any]]) -> dict[str, dict[str, list[float]]]:
    """agent → game → scores of the finished seeds."""
    scores: dict[str, dict[str, list[float]]] = {}
    for outcome in outcomes:
        scores.setdefault(outcome["agent"], {}).setdefault(outcome["game"], []).append(outcome["score"])
    return scores


def cell(values: Sequence[float]) -> str:
    """IQM with its 95 % interval; one run alone has none."""
    interval = bootstrap_interval(score_matrix([list(values)]), iqm, np.random.default_rng(0), resamples=RESAMPLES)
    if len(values) < 2:
        return f"{float(interval.point):.2f}"
    return f"{float(interval.point):.2f} ({float(interval.low):.2f} – {float(interval.high):.2f})"


def normalized(scores: dict[str, dict[str, list[float]]], games: Sequence[str]) -> dict[str, np.ndarray]:
    """agent → [S, K]: random play is 0 and DQN's mean is 1 in each game."""
    matrices = {}
    for agent in (name for name in scores if name != "random"):
        columns = []
        for game in games:
            low, high = np.mean(scores["random"][game]), np.mean(scores["dqn"][game])
            columns.append([(value - low) / (high - low) for value in scores[agent][game]])
        matrices[agent] = score_matrix(columns)
    return matrices


def overall(scores: dict[str, dict[str, list[float]]], games: Sequence[str]) -> list[str]:
    """All games together; nothing where a game or the reference is missing, or there is one seed alone."""
    complete = all(set(by_game) >= set(games) for by_game in scores.values())
    if not complete or not {"random", "dqn"} <= set(scores) or min(len(scores["dqn"][game]) for game in games) < 2:
        return []
    if any(np.mean(scores["dqn"][game]) <= np.mean(scores["random"][game]) for game in games):
        return ["", "Some games are not learned yet: DQN is not above random play, so nothing is normalized by it."]
    matrices = normalized(scores, games)
    lines = [
        "",
        "All games together, scores normalized so that random play is 0 and DQN's mean is 1 in each game:",
        "",
        "| agent | IQM (95 % interval) | probability of improvement over DQN |",
        "|---|---|---|",
    ]
    for agent, matrix in matrices.items():
        interval: Interval = bootstrap_interval(matrix, iqm, np.random.default_rng(0), resamples=RESAMPLES)
        better = "" if agent == "dqn" else f"{float(probability_of_improvement(matrix, matrices['dqn'])):.2f}"
        lines.append(
            f"| {NAMES[agent]} | {float(interval.point):.2f} "
            f"({float(interval.low):.2f} – {float(interval.high):.2f}) | {better} |"
        )
    return lines


def page(jobs: Sequence[Job], record: Record, options: argparse.Namespace) -> str:
    outcomes = record.of(jobs)
    scores = collect(outcomes)
    counts = [len(values) for agent, games in scores.items() if agent != "random" for values in games.values()]
    seeds = " to ".join(map(str, sorted({min(counts, default=0), max(counts, default=0)})))
    games = [game for game in options.games if any(game in by_game for by_game in scores.values())]
    learned = [outcome for outcome in outcomes if outcome["agent"] != "random"]
    commits = sorted({outcome["commit"] for outcome in learned})
    planned = sum(job.agent != "random" for job in jobs)
    lines = [
        "# MinAtar",
        "",
        f"Made by `python benchmarks/minatar.py --frames {options.frames}` from the runs of so many frames that are "
        f"finished, {len(learned)} of {planned}; what each came to is in `{options.record.name}`. Settings: "
        "`agent=minatar_dqn` and its sisters, ε falling over the first half of the run. A run's score is the mean of "
        "100 games after its last frame, ε 0.001, sticky actions 0.1.",
        "",
        f"Interquartile mean over {seeds} seeds, in brackets the 95 % interval of a "
        "bootstrap over seeds, which with five of them is rather too narrow.",
        "",
        f"| agent | {' | '.join(games)} |",
        "|---" * (len(games) + 1) + "|",
    ]
    for agent in ("random", *options.agents):
        cells = [cell(scores[agent][game]) if game in scores.get(agent, {}) else "–" for game in games]
        lines.append(f"| {NAMES[agent]} | {' | '.join(cells)} |")
    lines += [*overall(scores, games), "", "| agent | steps a second of one run |", "|---|---|"]
    for agent in options.agents:
        speeds = [outcome["steps_per_second"] for outcome in learned if outcome["agent"] == agent]
        lines += [f"| {NAMES[agent]} | {np.median(speeds):,.0f} |"] if speeds else []
    lines += [
        "",
        f"Commits: {', '.join(commits) or 'none'}. Speeds include evaluations and are those of one thread each.",
    ]
    return "\n".join(lines) + "\n"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES), metavar="GAME", help=", ".join(GAMES))
    parser.add_argument(
        "--agents", nargs="+", choices=AGENTS, default=list(AGENTS), metavar="AGENT", help=", ".join(AGENTS)
    )
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 1 up (default 5)")
    parser.add_argument("--frames", type=int, default=100_000, help="of each run (default 100,000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once (default: the cores)")
    parser.add_argument("--output", type=Path, default=Path("outputs/minatar"), help="where the runs go")
    parser.add_argument("--page", type=Path, default=Path("docs/results/minatar.md"), help="where the table goes")
    parser.add_argument(
        "--record", type=Path, default=Path("docs/results/minatar.jsonl"), help="what finished runs came to"
    )
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    for name in ("seeds", "frames", "jobs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}, but must be at least 1")
    return options


def main() -> int:
    options = parse()
    jobs, record = jobs_for(options), Record(options.record)
    failed = 0 if options.table_only else work(jobs, record, options.jobs)
    if not record.of(jobs):
        print(f"{options.record} has none of these runs, so there is no table", file=sys.stderr)
        return 1 if failed else 0
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(page(jobs, record, options))
    print(options.page)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
