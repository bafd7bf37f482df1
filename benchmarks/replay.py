"""Replay side by side with other libraries: memory, add, sample, and prioritized sample + update.

    python benchmarks/replay.py                                    ours alone
    python benchmarks/replay.py --peers-venv ~/peers               with those of the others that install
    python benchmarks/replay.py --frames pong.npy --output out.json

Every library runs in a process of its own. The rounds are interleaved (one round of each library, then the next), so
that a busy machine hits all alike; the table gives medians over the rounds, and the ratio column the median of the
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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
STACK, SIDE, ROWS = 4, 84, 8
ENTRIES = 1_000_000  # of the trees
OURS = ("ours raw", "ours compressed", "ours prioritized", "ours tree")
PEERS = ("sb3", "sb3 memory option", "tianshou", "tianshou prioritized", "torchrl", "cpprb prioritized",
         "tianshou tree", "cpprb tree")  # fmt: skip
BASELINES = {
    "sb3": "ours raw",
    "sb3 memory option": "ours raw",
    "tianshou": "ours raw",
    "torchrl": "ours raw",
    "ours compressed": "ours raw",
    "tianshou prioritized": "ours prioritized",
    "cpprb prioritized": "ours prioritized",
    "tianshou tree": "ours tree",
    "cpprb tree": "ours tree",
}
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


def clock(action: Callable[[], Any], seconds: float) -> float:
    """Calls a second, after a few to warm up."""
    for _ in range(3):
        action()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        action()
        count += 1
    return count / (time.perf_counter() - begin)


@dataclass
class Case:
    """One library: what a draw is, and how steps get in where it stores them."""

    act: Callable[[], Any]
    add: Callable[[np.ndarray, np.ndarray, np.ndarray], Any] | None = None  # obs, next_obs [8, 4, 84, 84], ends [8]
    memory: Callable[[], float] = lambda: float("nan")
    rows: int = ROWS  # of each step that are really stored


def fill(case: Case, frames: np.ndarray, size: int) -> float:
    """Transitions added a second; games of 1,000 steps, the rows at different places of them."""
    if case.add is None:
        return 0.0
    span, spent = len(frames) - STACK - 1, 0.0
    for t in range(size // ROWS):
        starts = [(t + row * 131) % span for row in range(ROWS)]
        obs = np.stack([frames[s : s + STACK] for s in starts])
        following = np.stack([frames[s + 1 : s + 1 + STACK] for s in starts])
        ends = np.array([(t + row * 37) % 1000 == 999 for row in range(ROWS)])
        begin = time.perf_counter()
        case.add(obs, following, ends)
        spent += time.perf_counter() - begin
    return size // ROWS * case.rows / spent


def ours(size: int, batch: int, *, compressed: bool = False, prioritized: bool = False) -> Case:
    from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
    from retrograd.replay import CompressedStorage, NStep, Prioritized, RawStorage, Replay, Uniform

    spec = EnvSpec("atari", ArraySpec((STACK, SIDE, SIDE), np.dtype(np.uint8)), DiscreteActions(6), STACK, 4)
    storage = (CompressedStorage if compressed else RawStorage)(spec, size, ROWS)
    replay = Replay(storage, Prioritized() if prioritized else Uniform(), NStep(1, 0.99), np.random.default_rng(0))
    reward, action, never = np.zeros(ROWS, np.float32), np.zeros(ROWS, np.int64), np.zeros(ROWS, bool)

    def act() -> None:
        drawn = replay.sample(batch, step=0)
        if prioritized:
            replay.update(drawn.index, drawn.reward + 1.0)

    return Case(
        act,
        lambda obs, following, ends: replay.add(Step(obs, action, reward, ends, never, ends, following)),
        lambda: replay.diagnostics()["bytes"] / len(replay),
    )


def our_tree(size: int, batch: int) -> Case:
    from retrograd.replay import Prioritized
    from retrograd.replay.starts import Starts

    sampler, starts, rng = Prioritized(), Starts(ENTRIES), np.random.default_rng(0)
    sampler.attach(ENTRIES)
    starts.open(np.arange(ENTRIES))
    sampler.tree.load(rng.exponential(size=ENTRIES))
    used, priority = np.array([ENTRIES]), rng.exponential(size=batch)
    return Case(lambda: sampler.update(sampler.draw(starts, used, batch, step=0, rng=rng)[0], priority))


def tianshou_tree(size: int, batch: int) -> Case:
    from tianshou.data import SegmentTree

    tree, rng = SegmentTree(ENTRIES), np.random.default_rng(0)
    tree[np.arange(ENTRIES)] = rng.exponential(size=ENTRIES)
    priority = rng.exponential(size=batch)

    def act() -> None:
        tree[tree.get_prefix_sum_idx(rng.random(batch) * tree.reduce())] = priority

    return Case(act)


def cpprb_tree(size: int, batch: int) -> Case:
    from cpprb import PrioritizedReplayBuffer

    buffer, rng = PrioritizedReplayBuffer(ENTRIES, {"x": {"dtype": np.uint8}}), np.random.default_rng(0)
    for _ in range(ENTRIES // 10_000):
        buffer.add(x=np.zeros(10_000, np.uint8), priorities=rng.exponential(size=10_000))
    priority = rng.exponential(size=batch)
    return Case(lambda: buffer.update_priorities(buffer.sample(batch)["indexes"], priority))


def stable_baselines(size: int, batch: int, *, optimize: bool = False) -> Case:
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    box = spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
    options = {"optimize_memory_usage": optimize, "handle_timeout_termination": not optimize}
    buffer = ReplayBuffer(size, box, spaces.Discrete(6), n_envs=ROWS, **options)
    zeros, arrays = np.zeros(ROWS), [buffer.observations] + ([] if optimize else [buffer.next_observations])
    return Case(
        lambda: buffer.sample(batch),
        lambda obs, following, ends: buffer.add(obs, following, zeros.astype(int), zeros, ends, [{}] * ROWS),
        lambda: sum(array.nbytes for array in arrays) / size,
    )


def tianshou(size: int, batch: int, *, prioritized: bool = False) -> Case:
    from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer

    options = {"stack_num": STACK, "ignore_obs_next": True, "save_only_last_obs": True}
    options |= {"alpha": 0.6, "beta": 0.4} if prioritized else {}
    buffer = (PrioritizedVectorReplayBuffer if prioritized else VectorReplayBuffer)(size, ROWS, **options)
    zeros, never = np.zeros(ROWS), np.zeros(ROWS, bool)

    def add(obs: np.ndarray, following: np.ndarray, ends: np.ndarray) -> None:
        flags = {"terminated": ends, "truncated": never, "info": Batch()}
        buffer.add(Batch(obs=obs, act=zeros.astype(int), rew=zeros, obs_next=following, **flags))

    def act() -> None:
        _, index = buffer.sample(batch)
        buffer.get(buffer.next(index), "obs")
        if prioritized:
            buffer.update_weight(index, np.ones(batch))

    return Case(act, add)


def torchrl(size: int, batch: int) -> Case:
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(size), batch_size=batch)

    def add(obs: np.ndarray, following: np.ndarray, ends: np.ndarray) -> None:
        parts = {"obs": torch.from_numpy(obs), "next": torch.from_numpy(following), "end": torch.from_numpy(ends)}
        parts |= {"action": torch.zeros(ROWS, dtype=torch.int64), "reward": torch.zeros(ROWS)}
        buffer.extend(TensorDict(parts, batch_size=[ROWS]))

    return Case(buffer.sample, add, lambda: 2.0 * STACK * SIDE * SIDE)


def cpprb(size: int, batch: int) -> Case:
    """Its stack compression knows one row only, so that it holds an eighth of what the others do."""
    from cpprb import PrioritizedReplayBuffer

    shape = {"shape": (SIDE, SIDE, STACK), "dtype": np.uint8}
    env = {"obs": shape, "act": {"dtype": np.int64}, "rew": {}, "end": {}}
    buffer = PrioritizedReplayBuffer(size // ROWS, env, next_of="obs", stack_compress="obs")

    def add(obs: np.ndarray, following: np.ndarray, ends: np.ndarray) -> None:
        now, then = np.moveaxis(obs[0], 0, -1), np.moveaxis(following[0], 0, -1)
        buffer.add(obs=now, act=0, rew=0.0, next_obs=then, end=float(ends[0]))
        if ends[0]:
            buffer.on_episode_end()

    return Case(lambda: buffer.update_priorities(buffer.sample(batch)["indexes"], np.ones(batch)), add, rows=1)


CASES: dict[str, Callable[[int, int], Case]] = {
    "ours raw": ours,
    "ours compressed": partial(ours, compressed=True),
    "ours prioritized": partial(ours, prioritized=True),
    "ours tree": our_tree,
    "sb3": stable_baselines,
    "sb3 memory option": partial(stable_baselines, optimize=True),
    "tianshou": tianshou,
    "tianshou prioritized": partial(tianshou, prioritized=True),
    "tianshou tree": tianshou_tree,
    "torchrl": torchrl,
    "cpprb prioritized": cpprb,
    "cpprb tree": cpprb_tree,
}


def serve(name: str, options: argparse.Namespace) -> None:
    """The child: fill, report, then one round for every line on standard input."""
    case = CASES[name](options.size, options.batch)
    added = fill(case, make_frames(options.frames), options.size)
    print(json.dumps({"add_per_second": added, "bytes_per_transition": case.memory()}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"per_second": clock(case.act, options.seconds)}), flush=True)


class Child:
    """A library in its own process; ``None`` figures where it does not import or fails."""

    def __init__(self, name: str, python: str, options: argparse.Namespace) -> None:
        command = [python, str(HERE / "replay.py"), "--serve", name, "--size", str(options.size)]
        command += ["--batch", str(options.batch), "--seconds", str(options.seconds)]
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

    def round(self) -> Figures | None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
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


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """All figures of all libraries that ran."""
    children: dict[str, Child] = {}
    names = [(name, sys.executable) for name in OURS]
    if options.peers_venv:
        python = peers_python(Path(options.peers_venv).expanduser())
        names += [(name, python) for name in PEERS]
    for name, python in names:
        child = Child(name, python, options)
        if child.first is None:
            print(f"{name}: does not run here", file=sys.stderr)
        else:
            children[name] = child
    rounds: dict[str, list[float]] = {name: [] for name in children}
    for _ in range(options.rounds):
        for name, child in children.items():
            figures = child.round()
            rounds[name].append(figures["per_second"] if figures else float("nan"))
    for child in children.values():
        child.close()
    result = {}
    for name, child in children.items():
        baseline = rounds.get(BASELINES.get(name, name), rounds[name])
        ratios = [one / base for one, base in zip(rounds[name], baseline, strict=True)]
        figures = {"per_second": statistics.median(rounds[name]), "ratio_to_ours": statistics.median(ratios)}
        result[name] = {**(child.first or {}), **figures, "rounds": rounds[name]}
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


def table(result: dict[str, Any], batch: int) -> str:
    lines = [f"| library | add/s | sample({batch})/s | × ours | bytes/transition |", "|---|---|---|---|---|"]
    for name, one in result.items():
        added, memory = one.get("add_per_second", 0.0), one.get("bytes_per_transition", float("nan"))
        cells = [f"{added:,.0f}" if added else "", f"{one['per_second']:,.0f}", f"{one['ratio_to_ours']:.2f}"]
        cells.append("" if memory != memory else f"{memory:,.0f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000, help="transitions in every buffer")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each round")
    parser.add_argument("--frames", help="uint8 [F, 84, 84] .npy of a game as a policy plays it")
    parser.add_argument("--peers-venv", help="folder of the other libraries' environment; made when missing")
    parser.add_argument("--output", help="write all figures to this JSON file")
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
    print(f"{machine}; {options.size:,} transitions of {STACK}×{SIDE}×{SIDE}, {ROWS} rows; tree: a million entries\n")
    print(table(result, options.batch))
    print("\nprioritized and tree rows: sample and update of the batch")
    print(f"compression: {coded['bytes_per_frame']:.0f} bytes a frame, {coded['ratio']:.1f} times smaller,", end=" ")
    print(f"{coded['gigabytes_per_million']:.2f} GB a million; {coded['microseconds_per_frame']:.1f} µs to code one")
    if options.output:
        record = {"machine": machine, "options": vars(options), "libraries": result, "compression": coded}
        Path(options.output).write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
