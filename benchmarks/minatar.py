"""The MinAtar table of docs/results/minatar.md: five games × four agents × five seeds, from one command.

    python benchmarks/minatar.py                              everything; finished runs are kept, so it may be stopped
    python benchmarks/minatar.py --games breakout --agents dqn rainbow --seeds 1 --frames 20000 --page try.md
    python benchmarks/minatar.py --table-only                 the page again, from the runs that are there

A run's score is the mean of its final evaluation: 100 games with ε 0.001. Needs the extra "minatar".
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

    def summary(self) -> dict[str, Any] | None:
        """What the run came to; None where it has not reached its end."""
        file = self.folder / "summary.json"
        return json.loads(file.read_text()) if file.is_file() else None

    def command(self) -> list[str]:
        chosen = ["agent=random", "eval=minatar"] if self.agent == "random" else [f"agent=minatar_{self.agent}"]
        return [
            *(sys.executable, "-m", "retrograd", "train", f"env=minatar_{self.game}", *chosen, f"seed={self.seed}"),
            f"training.total_env_frames={self.frames}",
            f"training.light_eval_every_frames={max(self.frames // 10, 1)}",
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
        if done.returncode or self.summary() is None:
            raise RuntimeError(f"{' '.join(self.command())}\nended with {done.returncode}:\n{done.stderr[-2000:]}")
        return time.monotonic() - begun


def jobs_for(options: argparse.Namespace) -> list[Job]:
    """Seed by seed, so that a table of fewer seeds is complete as early as possible."""
    learned = [
        Job(game, agent, seed, options.frames, options.output)
        for seed in range(1, options.seeds + 1)
        for game in options.games
        for agent in options.agents
    ]
    return [Job(game, "random", 1, 1000, options.output) for game in options.games] + learned


def work(jobs: Sequence[Job], at_once: int) -> int:
    """Run what is not finished; returns how many failed."""
    missing = [job for job in jobs if job.summary() is None]
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
                score = (job.summary() or {})["final"]["mean_return"]
                print(f"{head}: {score:.2f} in {future.result():.0f} s", file=sys.stderr)
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def collect(jobs: Sequence[Job]) -> dict[str, dict[str, list[float]]]:
    """agent → game → scores of the finished seeds."""
    scores: dict[str, dict[str, list[float]]] = {}
    for job in jobs:
        summary = job.summary()
        if summary is not None:
            scores.setdefault(job.agent, {}).setdefault(job.game, []).append(summary["final"]["mean_return"])
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


def page(jobs: Sequence[Job], options: argparse.Namespace) -> str:
    scores = collect(jobs)
    seeds = sorted({len(values) for agent, games in scores.items() if agent != "random" for values in games.values()})
    games = [game for game in options.games if any(game in by_game for by_game in scores.values())]
    learned = [job for job in jobs if job.agent != "random" and job.summary() is not None]
    commits = sorted({_commit(job) for job in learned})
    planned = sum(job.agent != "random" for job in jobs)
    lines = [
        "# MinAtar",
        "",
        f"Made by `python benchmarks/minatar.py` from the runs of {options.frames:,} frames each that are finished: "
        f"{len(learned)} of {planned}. Settings: `agent=minatar_dqn` and its "
        "sisters. A run's score is the mean of 100 games after its last frame, ε 0.001, sticky actions 0.1.",
        "",
        f"Interquartile mean over {' to '.join(map(str, seeds)) or 'no'} seeds, in brackets the 95 % interval of a "
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
        speeds = [_speed(job) for job in learned if job.agent == agent]
        lines += [f"| {NAMES[agent]} | {np.median(speeds):,.0f} |"] if speeds else []
    lines += [
        "",
        f"Commits: {', '.join(commits) or 'none'}. Speeds include evaluations and are those of one thread each.",
    ]
    return "\n".join(lines) + "\n"


def _speed(job: Job) -> float:
    summary = job.summary() or {}
    return float(summary["step"] / summary["wall_seconds"])


def _commit(job: Job) -> str:
    versions = json.loads((job.folder / "versions.json").read_text())
    git = versions.get("git") or {}
    return f"{git.get('commit', 'unknown')[:10]}{' with changes' if git.get('dirty') else ''}"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES), metavar="GAME", help=", ".join(GAMES))
    parser.add_argument(
        "--agents", nargs="+", choices=AGENTS, default=list(AGENTS), metavar="AGENT", help=", ".join(AGENTS)
    )
    parser.add_argument("--seeds", type=int, default=5, help="how many, from 1 up (default 5)")
    parser.add_argument("--frames", type=int, default=1_000_000, help="of each run (default 1,000,000)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="runs at once (default: the cores)")
    parser.add_argument("--output", type=Path, default=Path("outputs/minatar"), help="where the runs go")
    parser.add_argument("--page", type=Path, default=Path("docs/results/minatar.md"), help="where the table goes")
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    for name in ("seeds", "frames", "jobs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} is {getattr(options, name)}, but must be at least 1")
    return options


def main() -> int:
    options = parse()
    jobs = jobs_for(options)
    failed = 0 if options.table_only else work(jobs, options.jobs)
    options.page.parent.mkdir(parents=True, exist_ok=True)
    options.page.write_text(page(jobs, options))
    print(options.page)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
