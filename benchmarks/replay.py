"""Replay side by side with other libraries: memory, add, sample, and prioritized sample + update.

    python benchmarks/replay.py                                    ours alone
    python benchmarks/replay.py --peers-venv ~/peers               with those of the others that install
    python benchmarks/replay.py --peers-venv ~/peers --output replay.json --markdown replay.md
    python benchmarks/replay.py --only "ours prioritized" "cpprb prioritized" --peers-venv ~/peers --size 20000

Every library runs in a process of its own. The rounds are interleaved (one round of each library, then the next), so
that a busy machine hits all alike; the table gives medians over the rounds, and the ratio columns the median of the
ratios to ours within each round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from replay_cases import BASELINES, CASES, OURS, PEERS, ROWS, SIDE, SINGLE_FRAMES, STACK, WIDTH, Case

HERE = Path(__file__).resolve().parent
Figures = dict[str, float]


def make_frames(path: str | None) -> np.ndarray:
    """[F, 84, 84] uint8: those of a file, or a made-up game of moving things on a plain ground."""
    if path:
        frames = np.load(path, mmap_mode="r")
        if frames.ndim != 3 or frames.shape[1:] != (SIDE, SIDE) or frames.dtype != np.uint8:
            raise SystemExit(f"{path} holds {frames.dtype} {frames.shape}: must be uint8 [F, {SIDE}, {SIDE}]")
        return np.asarray(frames)
    frames = np.full((4000, SIDE, SIDE), 87, np.uint8)
    for t, frame in enumerate(frames):
        for thing in range(12):
            y, x = (t * (thing % 5 + 1) + 13 * thing) % 78, (t * (thing % 3 + 1) + 29 * thing) % 78
            frame[y : y + 5, x : x + 4] = 100 + 10 * thing
    return frames


def clock(action: Callable[[], Any], seconds: float, timer: Callable[[], float]) -> float:
    """Calls a second, after a few to warm up."""
    for _ in range(3):
        action()
    count, begin = 0, timer()
    while timer() - begin < seconds:
        action()
        count += 1
    return count / (timer() - begin)


def fill(case: Case, frames: np.ndarray, size: int) -> float:
    """Transitions added a second; games of 1,000 steps, the rows at different places of them."""
    if case.add is None:
        return 0.0
    span, spent, size = len(frames) - STACK - 1, 0.0, case.size or size
    vectors = np.random.default_rng(0).normal(size=(2, case.rows, WIDTH)).astype(np.float32)
    for t in range(size // case.rows):
        if case.vectors:
            obs, following = vectors
        else:
            starts = [(t + row * 131) % span for row in range(case.rows)]
            obs = np.stack([frames[s : s + STACK] for s in starts])
            following = np.stack([frames[s + 1 : s + 1 + STACK] for s in starts])
        ends = np.array([(t + row * 37) % 1000 == 999 for row in range(case.rows)])
        begin = time.perf_counter()
        case.add(obs, following, ends)
        spent += time.perf_counter() - begin
    return size // case.rows * case.rows / spent


def serve(name: str, options: argparse.Namespace) -> None:
    """The child: fill, report, then one round for every batch size on standard input."""
    case = CASES[name](options.size)
    timer = time.process_time if options.cpu_time else time.perf_counter
    added = fill(case, make_frames(options.frames), options.size)
    print(json.dumps({"add_per_second": added, "bytes_per_transition": case.memory()}), flush=True)
    for line in sys.stdin:
        batch = int(line)
        print(json.dumps({"per_second": clock(lambda: case.act(batch), options.seconds, timer)}), flush=True)  # noqa: B023


class Child:
    """A library in its own process; ``None`` figures where it does not import or fails."""

    def __init__(self, name: str, python: str, options: argparse.Namespace) -> None:
        command = [python, str(HERE / "replay.py"), "--serve", name, "--size", str(options.size)]
        command += ["--seconds", str(options.seconds)] + (["--cpu-time"] if options.cpu_time else [])
        command += ["--frames", options.frames] if options.frames else []
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        errors = None if options.verbose else subprocess.DEVNULL
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=env)
        self.first = self.read()

    def read(self) -> Figures | None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                figures: Figures = json.loads(line)
                return figures
        return None

    def round(self, batch: int) -> Figures | None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{batch}\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


def peers_python(folder: Path) -> str:
    """The interpreter of the peers' environment, which is made when it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        for line in (HERE / "requirements-peers.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                # one by one: a library that does not install must not keep the others out
                subprocess.run([str(python), "-m", "pip", "install", "-q", line], check=False)
    return str(python)


def start(options: argparse.Namespace) -> dict[str, Child]:
    """All libraries that run here, filled one after the other."""
    children: dict[str, Child] = {}
    names = [(name, sys.executable) for name in OURS]
    if options.peers_venv:
        python = peers_python(Path(options.peers_venv).expanduser())
        names += [(name, python) for name in PEERS]
    for name, python in names:
        if options.only and name not in options.only:
            continue
        begin = time.monotonic()
        child = Child(name, python, options)
        if child.first is None:
            print(f"{name}: does not run here", file=sys.stderr)
        else:
            children[name] = child
            print(f"{name}: filled in {time.monotonic() - begin:.0f} s", file=sys.stderr)
    return children


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """All figures of all libraries that ran."""
    children = start(options)
    rounds: dict[str, dict[int, list[float]]] = {name: {b: [] for b in options.batch} for name in children}
    for number in range(options.rounds):
        for batch in options.batch:
            for name, child in children.items():
                figures = child.round(batch)
                rounds[name][batch].append(figures["per_second"] if figures else float("nan"))
        print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    for child in children.values():
        child.close()
    result: dict[str, Any] = {}
    for name, child in children.items():
        result[name] = dict(child.first or {})
        for batch, own in rounds[name].items():
            baseline = rounds.get(BASELINES.get(name, name), rounds[name])[batch]
            ratios = [one / base for one, base in zip(own, baseline, strict=True)]
            figures = {"per_second": statistics.median(own), "ratio_to_ours": statistics.median(ratios)}
            result[name][str(batch)] = {**figures, "rounds": own}
    return result


def compression(frames: np.ndarray) -> Figures:
    """Bytes a frame and speed of the block codec."""
    from retrograd.replay.codec import encode_block
    from retrograd.replay.memory import COMPRESSED_BLOCK_SLOTS as BLOCK

    blocks = [frames[i : i + BLOCK] for i in range(0, len(frames) - BLOCK + 1, BLOCK)]
    begin = time.perf_counter()
    total = sum(len(encode_block(np.ascontiguousarray(block), SIDE)) for block in blocks)
    spent = time.perf_counter() - begin
    per_frame = total / (len(blocks) * BLOCK)
    return {
        "bytes_per_frame": per_frame,
        "ratio": SIDE * SIDE / per_frame,
        "gigabytes_per_million": per_frame / 1000,
        "microseconds_per_frame": spent / (len(blocks) * BLOCK) * 1e6,
    }


def table(result: dict[str, Any], batches: list[int]) -> str:
    columns = "".join(f" batch of {batch}, a second | × ours |" for batch in batches)
    lines = [f"| library | add/s |{columns} bytes/transition |", "|---|---|" + "---|---|" * len(batches) + "---|"]
    for name, one in result.items():
        added, memory = one.get("add_per_second", 0.0), one.get("bytes_per_transition", float("nan"))
        cells = [f"{added:,.0f}" if added else ""]
        for batch in batches:
            figures = one[str(batch)]
            cells += [f"{figures['per_second']:,.0f}", f"{figures['ratio_to_ours']:.2f}"]
        cells.append("" if memory != memory else f"{memory:,.0f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def verdicts(result: dict[str, Any], batches: list[int]) -> list[str]:
    """What the figures were to reach, and whether they do."""

    def judge(what: str, found: float, good: bool) -> str:
        return f"- {'met' if good else 'MISSED'}: {what}: {found:,.2f}"

    lines = []
    if "ours raw" in result:
        memory = result["ours raw"]["bytes_per_transition"]
        lines.append(judge("raw takes at most 7,200 bytes a transition", memory, memory <= 7200))
    for batch in batches:
        ratios = {name: one[str(batch)]["ratio_to_ours"] for name, one in result.items() if name not in OURS}
        for kind, names in (
            ("peer that stores single frames", [name for name in ratios if name in SINGLE_FRAMES]),
            ("prioritized buffer of a million", [name for name in ratios if name.endswith("prioritized 1M")]),
            ("tree of a million", [name for name in ratios if name.endswith("tree 1M")]),
        ):
            if names:
                fastest = max(names, key=lambda name: ratios[name])
                what = f"batch of {batch}: fastest {kind} ({fastest}), times our speed"
                lines.append(judge(what, ratios[fastest], ratios[fastest] <= 1.0))
        if "ours compressed" in result and "ours raw" in result:
            slower = 1 / result["ours compressed"][str(batch)]["ratio_to_ours"]
            lines.append(judge(f"batch of {batch}: compressed at most 3 times slower than raw", slower, slower <= 3))
    return lines


def report(result: dict[str, Any], options: argparse.Namespace, machine: str, coded: Figures) -> str:
    libraries = "; ".join(f"{kind} rows: sample and update" for kind in ("prioritized", "tree"))
    return "\n".join([
        f"{machine}; {options.size:,} transitions of {STACK}×{SIDE}×{SIDE} in {ROWS} rows, cpprb in 1; 1M: a million "
        f"vectors of {WIDTH}, or tree leaves",
        "",
        table(result, options.batch),
        "",
        f"{libraries}. Ours, SB3 and torchrl hand out tensors, tianshou and cpprb arrays.",
        f"compression: {coded['bytes_per_frame']:.0f} bytes a frame, {coded['ratio']:.1f} times smaller, "
        f"{coded['gigabytes_per_million']:.2f} GB a million; {coded['microseconds_per_frame']:.1f} µs to code one",
        "",
        *verdicts(result, options.batch),
    ])  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000, help="transitions in every buffer of frames")
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 512])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each round")
    parser.add_argument("--frames", help="uint8 [F, 84, 84] .npy of a game as a policy plays it")
    parser.add_argument("--peers-venv", help="folder of the other libraries' environment; made when missing")
    parser.add_argument("--only", nargs="+", choices=sorted(CASES), help="just these; without their baseline no ratio")
    parser.add_argument("--cpu-time", action="store_true", help="count processor time: for a busy machine")
    parser.add_argument("--output", help="write all figures to this JSON file")
    parser.add_argument("--markdown", help="write the report to this file too")
    parser.add_argument("--verbose", action="store_true", help="show what the libraries print")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options)
        return
    result = compare(options)
    coded = compression(make_frames(options.frames))
    machine = (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    text = report(result, options, machine, coded)
    print(text)
    if options.markdown:
        Path(options.markdown).write_text(text + "\n")
    if options.output:
        record = {"machine": machine, "options": vars(options), "libraries": result, "compression": coded}
        Path(options.output).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
