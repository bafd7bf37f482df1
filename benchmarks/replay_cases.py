"""The libraries that ``benchmarks/replay.py`` compares, each as a ``Case``, imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

STACK, SIDE, ROWS = 4, 84, 8
ENTRIES = 1_000_000  # of the trees, and transitions of the buffers that are named so
MANY_ROWS, WIDTH = (
    64,
    4,
)  # of the buffers of a million: vectors, as a million stacked frames of three libraries do not fit
OURS = ("ours raw", "ours compressed", "ours prioritized", "ours prioritized 1M", "ours tree 1M")
PEERS = ("sb3", "sb3 memory option", "tianshou", "torchrl", "tianshou prioritized", "cpprb prioritized",
         "tianshou prioritized 1M", "cpprb prioritized 1M", "tianshou tree 1M", "cpprb tree 1M")  # fmt: skip
BASELINES = {
    "sb3": "ours raw",
    "sb3 memory option": "ours raw",
    "tianshou": "ours raw",
    "torchrl": "ours raw",
    "ours compressed": "ours raw",
    "tianshou prioritized": "ours prioritized",
    "cpprb prioritized": "ours prioritized",
    "tianshou prioritized 1M": "ours prioritized 1M",
    "cpprb prioritized 1M": "ours prioritized 1M",
    "tianshou tree 1M": "ours tree 1M",
    "cpprb tree 1M": "ours tree 1M",
}
SINGLE_FRAMES = ("tianshou", "tianshou prioritized", "cpprb prioritized")  # peers that store every frame once


priorities = cache(np.ones)


@dataclass
class Case:
    """One library: what a draw is, and how steps get in where it stores them."""

    act: Callable[[int], Any]  # of a batch of this size
    add: Callable[[np.ndarray, np.ndarray, np.ndarray], Any] | None = None  # obs, next_obs [rows, ...], ends [rows]
    memory: Callable[[], float] = lambda: float("nan")
    rows: int = ROWS
    size: int | None = None  # transitions to fill it with, where that is not the asked one
    vectors: bool = False  # observations are [WIDTH] float32 instead of stacked frames


def ours(size: int, *, compressed: bool = False, prioritized: bool = False, vectors: bool = False) -> Case:
    import torch

    from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
    from retrograd.replay import CompressedStorage, NStep, Prioritized, RawStorage, Replay, Uniform

    if vectors:
        spec = EnvSpec("vectors", ArraySpec((WIDTH,), np.dtype(np.float32)), DiscreteActions(6))
    else:
        spec = EnvSpec("atari", ArraySpec((STACK, SIDE, SIDE), np.dtype(np.uint8)), DiscreteActions(6), STACK, 4)
    rows, size = (MANY_ROWS, ENTRIES) if vectors else (ROWS, size)
    storage = (CompressedStorage if compressed else RawStorage)(spec, size, rows)
    replay = Replay(storage, Prioritized() if prioritized else Uniform(), NStep(1, 0.99), np.random.default_rng(0))
    reward, action, never = np.zeros(rows, np.float32), np.zeros(rows, np.int64), np.zeros(rows, bool)
    ones = cache(torch.ones)  # whoever makes the priorities, it is not the replay

    def act(batch: int) -> None:
        drawn = replay.sample(batch, step=0)
        if prioritized:
            replay.update(drawn.index, ones(batch))

    return Case(
        act,
        lambda obs, following, ends: replay.add(Step(obs, action, reward, ends, never, ends, following)),
        lambda: replay.diagnostics()["bytes"] / len(replay),
        rows=rows,
        size=size,
        vectors=vectors,
    )


def our_tree(size: int) -> Case:
    from retrograd.replay import Prioritized
    from retrograd.replay.starts import Starts

    sampler, starts, rng = Prioritized(), Starts(ENTRIES), np.random.default_rng(0)
    sampler.attach(ENTRIES)
    starts.open(np.arange(ENTRIES))
    sampler.tree.load(rng.exponential(size=ENTRIES))
    written = np.array([ENTRIES])

    def act(batch: int) -> None:
        slot, _ = sampler.draw(starts, written, batch, step=0, rng=rng)
        sampler.update(slot, priorities(batch))

    return Case(act)


def tianshou_tree(size: int) -> Case:
    from tianshou.data import SegmentTree

    tree, rng = SegmentTree(ENTRIES), np.random.default_rng(0)
    tree[np.arange(ENTRIES)] = rng.exponential(size=ENTRIES)

    def act(batch: int) -> None:
        tree[tree.get_prefix_sum_idx(rng.random(batch) * tree.reduce())] = priorities(batch)

    return Case(act)


def cpprb_tree(size: int) -> Case:
    from cpprb import PrioritizedReplayBuffer

    buffer, rng = PrioritizedReplayBuffer(ENTRIES, {"x": {"dtype": np.uint8}}), np.random.default_rng(0)
    for _ in range(ENTRIES // 10_000):
        buffer.add(x=np.zeros(10_000, np.uint8), priorities=rng.exponential(size=10_000))
    return Case(lambda batch: buffer.update_priorities(buffer.sample(batch)["indexes"], priorities(batch)))


def stable_baselines(size: int, *, optimize: bool = False) -> Case:
    from gymnasium import spaces
    from stable_baselines3.common.buffers import ReplayBuffer

    box = spaces.Box(0, 255, (STACK, SIDE, SIDE), np.uint8)
    options = {"optimize_memory_usage": optimize, "handle_timeout_termination": not optimize}
    buffer = ReplayBuffer(size, box, spaces.Discrete(6), n_envs=ROWS, **options)
    zeros, arrays = np.zeros(ROWS), [buffer.observations] + ([] if optimize else [buffer.next_observations])
    return Case(
        lambda batch: buffer.sample(batch),
        lambda obs, following, ends: buffer.add(obs, following, zeros.astype(int), zeros, ends, [{}] * ROWS),
        lambda: sum(array.nbytes for array in arrays) / size,
    )


def tianshou(size: int, *, prioritized: bool = False, vectors: bool = False) -> Case:
    from tianshou.data import Batch, PrioritizedVectorReplayBuffer, VectorReplayBuffer

    options: dict[str, Any] = {"stack_num": STACK, "ignore_obs_next": True, "save_only_last_obs": True}
    options = ({"ignore_obs_next": True} if vectors else options) | ({"alpha": 0.6, "beta": 0.4} if prioritized else {})
    rows, size = (MANY_ROWS, ENTRIES) if vectors else (ROWS, size)
    buffer = (PrioritizedVectorReplayBuffer if prioritized else VectorReplayBuffer)(size, rows, **options)
    zeros, never = np.zeros(rows), np.zeros(rows, bool)

    def add(obs: np.ndarray, following: np.ndarray, ends: np.ndarray) -> None:
        flags = {"terminated": ends, "truncated": never, "info": Batch()}
        buffer.add(Batch(obs=obs, act=zeros.astype(int), rew=zeros, obs_next=following, **flags))

    def act(batch: int) -> None:
        _, index = buffer.sample(batch)
        buffer.get(buffer.next(index), "obs")
        if prioritized:
            buffer.update_weight(index, priorities(batch))

    return Case(act, add, rows=rows, size=size, vectors=vectors)


def torchrl(size: int) -> Case:
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(size), batch_size=1)

    def add(obs: np.ndarray, following: np.ndarray, ends: np.ndarray) -> None:
        parts = {"obs": torch.from_numpy(obs), "next": torch.from_numpy(following), "end": torch.from_numpy(ends)}
        parts |= {"action": torch.zeros(ROWS, dtype=torch.int64), "reward": torch.zeros(ROWS)}
        buffer.extend(TensorDict(parts, batch_size=[ROWS]))

    return Case(lambda batch: buffer.sample(batch), add, lambda: 2.0 * STACK * SIDE * SIDE)


def cpprb(size: int) -> Case:
    """Its stack compression knows one row only, so that all transitions are of one."""
    from cpprb import PrioritizedReplayBuffer

    shape = {"shape": (SIDE, SIDE, STACK), "dtype": np.uint8}
    env = {"obs": shape, "act": {"dtype": np.int64}, "rew": {}, "end": {}}
    buffer = PrioritizedReplayBuffer(size, env, next_of="obs", stack_compress="obs")

    def add(obs: np.ndarray, following: np.ndarray, ends: np.ndarray) -> None:
        now, then = np.moveaxis(obs[0], 0, -1), np.moveaxis(following[0], 0, -1)
        buffer.add(obs=now, act=0, rew=0.0, next_obs=then, end=float(ends[0]))
        if ends[0]:
            buffer.on_episode_end()

    return Case(lambda batch: update_cpprb(buffer, batch), add, rows=1)


def cpprb_vectors(size: int) -> Case:
    from cpprb import PrioritizedReplayBuffer

    shape = {"shape": WIDTH, "dtype": np.float32}
    env = {"obs": shape, "act": {"dtype": np.int64}, "rew": {}, "next_obs": shape, "end": {}}
    buffer, zeros = PrioritizedReplayBuffer(ENTRIES, env), np.zeros(MANY_ROWS)

    def add(obs: np.ndarray, following: np.ndarray, ends: np.ndarray) -> None:
        buffer.add(obs=obs, act=zeros, rew=zeros, next_obs=following, end=ends)

    return Case(lambda batch: update_cpprb(buffer, batch), add, rows=MANY_ROWS, size=ENTRIES, vectors=True)


def update_cpprb(buffer: Any, batch: int) -> None:
    buffer.update_priorities(buffer.sample(batch)["indexes"], priorities(batch))


CASES: dict[str, Callable[[int], Case]] = {
    "ours raw": ours,
    "ours compressed": partial(ours, compressed=True),
    "ours prioritized": partial(ours, prioritized=True),
    "ours prioritized 1M": partial(ours, prioritized=True, vectors=True),
    "ours tree 1M": our_tree,
    "sb3": stable_baselines,
    "sb3 memory option": partial(stable_baselines, optimize=True),
    "tianshou": tianshou,
    "tianshou prioritized": partial(tianshou, prioritized=True),
    "tianshou prioritized 1M": partial(tianshou, prioritized=True, vectors=True),
    "tianshou tree 1M": tianshou_tree,
    "torchrl": torchrl,
    "cpprb prioritized": cpprb,
    "cpprb prioritized 1M": cpprb_vectors,
    "cpprb tree 1M": cpprb_tree,
}
