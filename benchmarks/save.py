"""How long it takes to save a full replay: the first time, and after a little more play; and that it comes back equal.

    python benchmarks/save.py                                   a million transitions of made-up frames, raw: 8 GB
    python benchmarks/save.py --size 100000 --storage compressed
    python benchmarks/save.py --frames pong.npy --folder /somewhere/with/space

The replay is filled, saved, played on and saved again. Then a new process loads the newest save and draws
batches, which must be those that the first process draws. Disks differ: the bytes written stand beside the seconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from replay import make_frames
from replay_cases import ROWS, SIDE, STACK

from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.replay import CompressedStorage, NStep, Prioritized, RawStorage, Replay, ReplaySaver, bytes_needed

STORAGES = {"raw": RawStorage, "compressed": CompressedStorage}
SPEC = EnvSpec("atari", ArraySpec((STACK, SIDE, SIDE), np.dtype(np.uint8)), DiscreteActions(6), STACK, 4)


def make(options: argparse.Namespace) -> Replay[Any]:
    storage = STORAGES[options.storage](SPEC, options.size, ROWS)
    return Replay(storage, Prioritized(), NStep(3, 0.99), np.random.default_rng(1))


def play(replay: Replay[Any], frames: np.ndarray, first: int, steps: int) -> None:
    """Games of about 1,000 steps, the rows at different places of the frames."""
    rng, span = np.random.default_rng(first), len(frames) - STACK - 1
    never = np.zeros(ROWS, bool)
    for t in range(first, first + steps):
        starts = [(t + row * 131) % span for row in range(ROWS)]
        obs = np.stack([frames[s : s + STACK] for s in starts])
        following = np.stack([frames[s + 1 : s + 1 + STACK] for s in starts])
        ends = np.array([(t + row * 37) % 1000 == 999 for row in range(ROWS)])
        reward = rng.normal(size=ROWS).astype(np.float32)
        replay.add(Step(obs, rng.integers(6, size=ROWS), reward, ends, never, ends, following))


def digest(replay: Replay[Any]) -> str:
    """Of ten batches with their weights, priorities taken in between."""
    found = hashlib.sha256()
    for _ in range(10):
        batch = replay.sample(256, step=0)
        for tensor in (batch.obs, batch.next_obs, batch.reward, batch.discount, batch.weight, batch.action):
            found.update(tensor.contiguous().numpy().tobytes())
        found.update(batch.index.tobytes())
        replay.update(batch.index, batch.reward)
    return found.hexdigest()


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def timed_save(saver: ReplaySaver, replay: Replay[Any]) -> dict[str, float]:
    before = {path: path.stat().st_mtime_ns for path in saver.folder.glob("*")}
    begin, cpu = time.perf_counter(), time.process_time()
    saver.save(replay)
    spent, busy = time.perf_counter() - begin, time.process_time() - cpu
    written = [path for path in saver.folder.iterdir() if before.get(path) != path.stat().st_mtime_ns]
    return {"seconds": spent, "cpu_seconds": busy, "written_gb": sum(path.stat().st_size for path in written) / 1e9}


def load(options: argparse.Namespace) -> None:
    """The other process."""
    replay = make(options)
    begin = time.perf_counter()
    ReplaySaver(options.folder).load(replay)
    spent = time.perf_counter() - begin
    replay.check_valid()
    print(json.dumps({"seconds": spent, "digest": digest(replay), "transitions": len(replay)}))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    replay, saver, frames = make(options), ReplaySaver(options.folder), make_frames(options.frames)
    steps = options.size // ROWS + 2 * STACK
    play(replay, frames, 0, steps)
    print(f"{len(replay):,} transitions are in; saving", file=sys.stderr)
    result: dict[str, Any] = {"transitions": len(replay), "first": timed_save(saver, replay)}
    print(f"saved in {result['first']['seconds']:.1f} s", file=sys.stderr)
    for share in (0.01, 0.1):
        more = int(options.size * share) // ROWS
        play(replay, frames, steps, more)
        steps += more
        result[f"later_{share:.0%}"] = timed_save(saver, replay)
    result["folder_gb"] = size_of(Path(options.folder)) / 1e9
    result["wanted_digest"] = digest(replay)
    result["peak_gb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return result


def load_elsewhere(options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, __file__, "--load", "--size", str(options.size), "--storage", options.storage]
    done = subprocess.run([*command, "--folder", options.folder], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def report(result: dict[str, Any], options: argparse.Namespace) -> str:
    lines = [f"{result['transitions']:,} transitions, {options.storage} storage", ""]
    lines += ["| save | seconds | of them at work | GB written |", "|---|---|---|---|"]
    for name, label in (("first", "first"), ("later_1%", "after 1 % more"), ("later_10%", "after 10 % more")):
        one = result[name]
        lines.append(f"| {label} | {one['seconds']:.1f} | {one['cpu_seconds']:.1f} | {one['written_gb']:.2f} |")
    same = result["loaded"]["digest"] == result["wanted_digest"]
    verdict = "the same batches" if same else "OTHER BATCHES"
    lines += ["", f"loaded in a new process in {result['loaded']['seconds']:.1f} s: {verdict}"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1_000_000, help="transitions")
    parser.add_argument("--storage", choices=sorted(STORAGES), default="raw")
    parser.add_argument("--frames", help="uint8 [F, 84, 84] .npy of a game as a policy plays it")
    parser.add_argument("--folder", help="an empty folder for the save; a temporary one without it")
    parser.add_argument("--output", help="write all figures to this JSON file")
    parser.add_argument("--load", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.load:
        load(options)
        return
    needed = bytes_needed(SPEC, options.size, ROWS, compressed=options.storage == "compressed", prioritized=True)
    free = psutil.virtual_memory().available
    if needed + 1e9 > free:
        raise SystemExit(f"this needs {needed / 1e9 + 1:.1f} GB, only {free / 1e9:.1f} GB are free: lower --size")
    with tempfile.TemporaryDirectory() as temporary:
        options.folder = options.folder or temporary
        result = measure(options)
        result["loaded"] = load_elsewhere(options)  # the first process's replay is gone by now: it fits once
    print(report(result, options))
    if options.output:
        Path(options.output).write_text(json.dumps(result, indent=1))
    if result["loaded"]["digest"] != result["wanted_digest"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
