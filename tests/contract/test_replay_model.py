"""Every storage × sampler × reader against a model made of plain lists, and mutants that it must catch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec, Step
from retrograd.replay import CompressedStorage, NStep, Prioritized, RawStorage, Replay, ReplaySaver, Uniform, Windows
from retrograd.replay.ring import CUT, Ring

STACK, SHAPE, ROWS, CAPACITY, GAMMA = 3, (4, 5), 2, 30, 0.9
STACKED = EnvSpec("stacked", ArraySpec((STACK, *SHAPE), np.dtype(np.uint8)), DiscreteActions(5), STACK, 4)
VECTOR = EnvSpec("vector", ArraySpec((3,), np.dtype(np.float32)), DiscreteActions(5))
DICT = EnvSpec(
    "dict",
    {"a": ArraySpec((2,), np.dtype(np.float32)), "b": ArraySpec((), np.dtype(np.int64))},
    DiscreteActions(5),
)
ALPHA, EPS, BETA_START = 0.6, 1e-6, 0.4
WHOLE_GAME = 12


class SmallBlocks(CompressedStorage):
    block_slots = 4


STORAGES = {
    "raw": lambda: RawStorage(STACKED, CAPACITY, ROWS, extras={"h": ArraySpec((2,), np.dtype(np.float32))}),
    "compressed": lambda: SmallBlocks(STACKED, CAPACITY, ROWS, extras={"h": ArraySpec((2,), np.dtype(np.float32))}),
    "vector": lambda: RawStorage(VECTOR, CAPACITY, ROWS, extras={"h": ArraySpec((2,), np.dtype(np.float32))}),
    "dict": lambda: RawStorage(DICT, CAPACITY, ROWS, extras={"h": ArraySpec((2,), np.dtype(np.float32))}),
}
SAMPLERS = {
    "uniform": Uniform,
    "prioritized": lambda: Prioritized(alpha=ALPHA, priority_eps=EPS, beta_decay_frames=100, frames_per_step=4),
}
READERS = {
    "one_step": lambda: NStep(1, GAMMA),
    "n_step": lambda: NStep(3, GAMMA),
    "long_n_step": lambda: NStep(5, GAMMA),
    "windows": lambda: Windows(6, stride_steps=3, burn_in_steps=2, gamma=GAMMA, state=("h",)),
    "games": lambda: Windows(WHOLE_GAME, gamma=GAMMA, state=("h",)),
}


class Game:
    """Makes steps of every row: unique frames, and ends of every kind."""

    def __init__(self, spec: EnvSpec) -> None:
        self.spec = spec
        self.count = 0
        self.obs = [self.first(row) for row in range(ROWS)]

    def fresh(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
        self.count += 1
        return np.random.default_rng(self.count).integers(1, 250, shape).astype(dtype)

    def first(self, row: int) -> Any:
        if isinstance(self.spec.obs, dict):
            return {key: self.fresh(part.shape, part.dtype) for key, part in self.spec.obs.items()}
        if self.spec.frame_stack is None:
            return self.fresh(self.spec.obs.shape, self.spec.obs.dtype)
        obs = np.zeros(self.spec.obs.shape, np.uint8)
        obs[-1] = self.fresh(SHAPE, np.dtype(np.uint8))
        if self.count % 7 == 0:
            obs[:] = obs[-1]  # some environments repeat the first frame instead of starting from black
        return obs

    def following(self, obs: Any) -> Any:
        if self.spec.frame_stack is None:
            return self.first(0)
        return np.concatenate([obs[1:], self.fresh((1, *SHAPE), np.dtype(np.uint8))])

    def step(self, kinds: list[str]) -> Step:
        obs = [*self.obs]
        successor = [self.following(one) for one in obs]
        terminated = np.array([kind in ("terminal", "life", "both") for kind in kinds])
        truncated = np.array([kind in ("limit", "both") for kind in kinds])
        reset = np.array([kind in ("terminal", "limit", "both", "reset") for kind in kinds])
        self.obs = [self.first(row) if reset[row] else successor[row] for row in range(ROWS)]
        self.count += 1
        rng = np.random.default_rng(self.count)
        return Step(
            obs=stacked(obs),
            action=rng.integers(5, size=ROWS),
            reward=rng.normal(size=ROWS).astype(np.float32),
            terminated=terminated,
            truncated=truncated,
            reset=reset,
            next_obs=stacked(successor),
            extras={"h": rng.normal(size=(ROWS, 2)).astype(np.float32), "unused": np.zeros(ROWS)},
        )


def stacked(parts: list[Any]) -> Any:
    if isinstance(parts[0], dict):
        return {key: np.stack([part[key] for part in parts]) for key in parts[0]}
    return np.stack(parts)


def part_of(obs: Any, row: int) -> Any:
    return {key: array[row] for key, array in obs.items()} if isinstance(obs, dict) else obs[row]


@dataclass
class Row:
    """Slots in order: the step that lies there (None where there is only an observation) and the frames since the
    game's first stored one. The last entry may be the observation that the next step starts from."""

    steps: list[Step | None] = field(default_factory=list)
    since: list[int] = field(default_factory=list)
    live: bool = False


class Model:
    """What the replay should hold, by definition and without arithmetic on rings."""

    def __init__(self, replay: Replay[Any]) -> None:
        self.ring, self.reader, self.sampler = replay.storage, replay.reader, replay.sampler
        self.rows = [Row() for _ in range(ROWS)]
        self.priority: dict[tuple[int, int], float] = {}
        self.largest = 1.0

    def add(self, step: Step) -> None:
        for number, row in enumerate(self.rows):
            if not row.live:
                obs = part_of(step.obs, number)
                older = self.ring.spec.frame_stack is not None and obs[:-1].any()
                for since in range(STACK if older else 1):
                    row.steps.append(None)
                    row.since.append(since)
            row.steps[-1] = step
            row.steps.append(None)
            row.since.append(row.since[-1] + 1)
            row.live = not step.reset[number]
        valid = self.valid()
        self.priority = {start: self.priority.get(start, self.largest**ALPHA) for start in valid}

    def oldest(self, row: Row) -> int:
        block = self.ring.block_slots
        return max(-(-len(row.steps) // block) * block - self.ring.slots_per_row, 0)

    def valid(self) -> list[tuple[int, int]]:
        starts = []
        for number, row in enumerate(self.rows):
            oldest = self.oldest(row)
            for position in range(oldest, len(row.steps)):
                if row.steps[position] is None:
                    continue
                first = position - min(row.since[position], self.ring.stack - 1)
                if first >= oldest and self.complete(number, position):
                    starts.append((number, position))
        return starts

    def window(self, number: int, position: int, length: int, *, whole_game: bool) -> list[Step]:
        """The steps from a position on, up to a cut or the end of what is known."""
        steps: list[Step] = []
        for step in self.rows[number].steps[position : position + length]:
            if step is None:
                break
            steps.append(step)
            if step.reset[number] or (not whole_game and (step.terminated[number] or step.truncated[number])):
                break
        return steps

    def complete(self, number: int, position: int) -> bool:
        if isinstance(self.reader, NStep):
            steps = self.window(number, position, self.reader.n_steps, whole_game=False)
            last = steps[-1]
            cut = last.terminated[number] or last.truncated[number] or last.reset[number]
            return bool(len(steps) == self.reader.n_steps or cut)
        row, length = self.rows[number], self.reader.length_steps
        played = 0  # steps of the game before this one
        while position > played and row.steps[position - played - 1] is not None:
            played += 1
        if played % self.reader.stride_steps:
            return False
        steps = self.window(number, position, length, whole_game=True)
        return len(steps) == length or bool(steps[-1].reset[number] and len(steps) > self.reader.burn_in_steps)

    def update(self, starts: list[tuple[int, int]], priority: list[float]) -> None:
        for start, value in zip(starts, priority, strict=True):
            if start in self.priority:
                self.priority[start] = (value + EPS) ** ALPHA
                self.largest = max(self.largest, value + EPS)

    def check(self, replay: Replay[Any]) -> None:
        replay.check_valid()
        found = {
            (int(row), int(position))
            for row, position in zip(*replay.storage.locate(np.flatnonzero(replay.starts.valid)), strict=True)
        }
        assert found == set(self.priority)
        assert len(replay) == len(self.priority)
        if isinstance(self.sampler, Prioritized):
            slots = {start: replay.storage.slot(start[0], np.array([start[1]])) for start in found}
            leaves = {start: float(replay.sampler.tree[slot][0]) for start, slot in slots.items()}
            assert leaves == pytest.approx(self.priority, rel=1e-12)

    def check_batch(self, batch: Any, step: int) -> None:
        starts = [(int(index) % ROWS, int(index) // ROWS) for index in batch.index]
        assert set(starts) <= set(self.priority)
        if isinstance(self.sampler, Prioritized):
            total = sum(self.priority.values())
            beta = BETA_START + (1 - BETA_START) * min(step * 4 / 100, 1)
            weight = [(len(self.priority) * self.priority[start] / total) ** -beta for start in starts]
            assert batch.weight.tolist() == pytest.approx([one / max(weight) for one in weight], rel=1e-5)
        else:
            assert (batch.weight == 1).all()
        check = self.check_transition if isinstance(self.reader, NStep) else self.check_window
        for place, start in enumerate(starts):
            check(batch, place, *start)

    def check_transition(self, batch: Any, place: int, number: int, position: int) -> None:
        steps = self.window(number, position, self.reader.n_steps, whole_game=False)
        total = 0.0
        for k, step in enumerate(steps):
            total += GAMMA**k * float(step.reward[number])
        discount = 0.0 if steps[-1].terminated[number] else GAMMA ** len(steps)
        equal(batch.obs, place, part_of(steps[0].obs, number))
        equal(batch.next_obs, place, part_of(steps[-1].next_obs, number))
        assert int(batch.action[place]) == steps[0].action[number]
        assert float(batch.reward[place]) == np.float32(total)
        assert float(batch.discount[place]) == np.float32(discount)

    def check_window(self, batch: Any, place: int, number: int, position: int) -> None:
        steps = self.window(number, position, self.reader.length_steps, whole_game=True)
        for t, step in enumerate(steps):
            equal(at_time(batch.obs, t), place, part_of(step.obs, number))
            assert int(batch.action[t, place]) == step.action[number]
            assert float(batch.reward[t, place]) == step.reward[number]
            assert float(batch.discount[t, place]) == np.float32(0 if step.terminated[number] else GAMMA)
        equal(at_time(batch.obs, len(steps)), place, part_of(steps[-1].next_obs, number))
        assert batch.mask[:, place].tolist() == [t < len(steps) for t in range(self.reader.length_steps)]
        assert not batch.reward[len(steps) :, place].any()
        assert batch.state["h"][place].tolist() == steps[0].extras["h"][number].tolist()


def at_time(obs: Any, t: int) -> Any:
    return {key: tensor[t] for key, tensor in obs.items()} if isinstance(obs, dict) else obs[t]


def equal(tensors: Any, place: int, wanted: Any) -> None:
    if isinstance(tensors, dict):
        assert tensors.keys() == wanted.keys()
        for key, tensor in tensors.items():
            assert np.array_equal(tensor[place].numpy(), wanted[key])
    else:
        assert np.array_equal(tensors[place].numpy(), wanted)


ENDS = ["on"] * 12 + ["terminal", "limit", "life", "both", "reset"]
play = st.tuples(st.just("play"), st.integers(1, 25), st.integers(0, 2**20), st.sampled_from([1, 3, 12]))
sample = st.tuples(st.just("sample"), st.integers(1, 9), st.integers(0, 60), st.just(0))
learn = st.tuples(st.just("learn"), st.integers(1, 9), st.integers(0, 2**20), st.integers(0, 30))
reload = st.tuples(st.sampled_from(["reload", "save"]), st.just(0), st.just(0), st.just(0))
programs = st.lists(st.one_of(play, play, sample, learn, reload), min_size=3, max_size=14)


def make(names: tuple[str, str, str]) -> Replay[Any]:
    storage, sampler, reader = names
    return Replay(STORAGES[storage](), SAMPLERS[sampler](), READERS[reader](), np.random.default_rng(0))


def run(names: tuple[str, str, str], program: list[tuple[str, int, int, int]], folder: Any) -> None:
    """Carry out a program on both sides and compare all there is after every instruction."""
    replay = make(names)
    model, game, saver = Model(replay), Game(replay.storage.spec), ReplaySaver(folder)
    for kind, count, number, more in program:
        rng = np.random.default_rng(number)
        if kind == "play":
            add_steps(replay, model, game, rng, count, more)
        elif kind in ("reload", "save"):
            replay, saver = reloaded(replay, names, kind, saver, folder)
        elif len(replay):
            batch = replay.sample(count, step=number)
            model.check_batch(batch, number)
            if kind == "learn":
                add_steps(replay, model, game, rng, more, 12)
                index = np.concatenate([batch.index, batch.index[: count // 2]])  # some come twice
                priority = rng.exponential(size=len(index)) * (rng.random(len(index)) < 0.9)
                replay.update(index, torch.from_numpy(priority))
                model.update([(int(i) % ROWS, int(i) // ROWS) for i in index], priority.tolist())
        model.check(replay)


def add_steps(replay: Replay[Any], model: Model, game: Game, rng: np.random.Generator, count: int, rarity: int) -> None:
    for _ in range(count):
        kinds = [str(rng.choice(ENDS)) if rng.integers(rarity) == 0 else "on" for _ in range(ROWS)]
        step = game.step(kinds)
        replay.add(step)
        model.add(step)


def reloaded(
    replay: Replay[Any], names: tuple[str, str, str], kind: str, saver: ReplaySaver, folder: Any
) -> tuple[Replay[Any], ReplaySaver]:
    other = make(names)
    if kind == "reload":
        other.load_state_dict(replay.state_dict())
        return other, ReplaySaver(folder)
    saver.save(replay)
    saver = ReplaySaver(folder)
    saver.load(other)
    return other, saver


COMBINATIONS = [
    (storage, sampler, reader)
    for storage in STORAGES
    for sampler in SAMPLERS
    for reader in READERS
    if storage in ("raw", "compressed") or reader in ("n_step", "windows")
]
QUIET = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]


@pytest.mark.parametrize("names", COMBINATIONS, ids="-".join)
def test_equals_list_model(names: tuple[str, str, str], tmp_path: Any) -> None:
    """REQ REPLAY-1, REPLAY-3, REPLAY-4, REPLAY-5: contents, weights and discounts are those of the definition."""

    @settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=QUIET, database=None)
    @given(programs)
    def check(program: list[tuple[str, int, int, int]]) -> None:
        run(names, program, tmp_path / "saved")

    check()


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("names", COMBINATIONS, ids="-".join)
def test_equals_list_model_in_1000_programs(names: tuple[str, str, str], tmp_path: Any) -> None:
    @settings(max_examples=1000, deadline=None, suppress_health_check=QUIET, database=None)
    @given(programs)
    def check(program: list[tuple[str, int, int, int]]) -> None:
        run(names, program, tmp_path / "saved")

    check()


# mutants: faults known from other libraries, each put in on purpose ---------------------------------------------


def overwrite_final_observation(patch: pytest.MonkeyPatch) -> None:
    original = Ring.add

    def add(self: Ring, step: Step) -> Any:
        change = original(self, step)
        self.head -= change.reset  # the next game's first frame takes the place of the true successor
        return change

    patch.setattr(Ring, "add", add)


def let_stacks_cross_games(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ring, "first_of_stack", lambda self, row, position: position - (self.stack - 1))
    patch.setattr("retrograd.replay.n_step.KERNELS", None)  # the C side does not ask the ring


def bootstrap_through_terminals(patch: pytest.MonkeyPatch) -> None:
    original = NStep.measure

    def measure(self: NStep, ring: Ring, row: Any, position: Any) -> Any:
        reward, _, length = original(self, ring, row, position)
        return reward, (GAMMA**length).astype(np.float32), length

    patch.setattr(NStep, "measure", measure)
    patch.setattr("retrograd.replay.n_step.KERNELS", None)  # the C side does not ask it


def discount_short_tails_fully(patch: pytest.MonkeyPatch) -> None:
    original = NStep.measure

    def measure(self: NStep, ring: Ring, row: Any, position: Any) -> Any:
        reward, discount, length = original(self, ring, row, position)
        return reward, np.where(discount > 0, np.float32(GAMMA**self.n_steps), discount), length

    patch.setattr(NStep, "measure", measure)
    patch.setattr("retrograd.replay.n_step.KERNELS", None)  # the C side does not ask it


def drop_tails(patch: pytest.MonkeyPatch) -> None:
    original = NStep.follow

    def follow(self: NStep, ring: Ring, change: Any) -> Any:
        complete = self._waiting + 1 == self.n_steps
        slot = original(self, ring, change)
        return slot if not change.cut.any() else ring.slot(
            np.flatnonzero(complete), (change.position - self.n_steps + 1)[complete])  # fmt: skip

    patch.setattr(NStep, "follow", follow)


def sum_across_lost_lives(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("retrograd.replay.n_step.CUT", CUT & ~2)


def accept_stale_priorities(patch: pytest.MonkeyPatch) -> None:
    def update(self: Replay[Any], index: Any, priority: torch.Tensor) -> None:
        slot = self.storage.slot(index % ROWS, index // ROWS)
        self.sampler.update(slot, priority.numpy())

    patch.setattr(Replay, "update", update)


def insert_without_priority(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Prioritized, "insert", lambda self, slot: self.tree.set(slot, np.zeros(len(slot))))


def average_duplicates(patch: pytest.MonkeyPatch) -> None:
    original = Prioritized.update

    def update(self: Prioritized, slot: Any, priority: Any) -> None:
        original(self, slot, np.array([priority[slot == one].mean() for one in slot]))

    patch.setattr(Prioritized, "update", update)


def keep_lost_stacks(patch: pytest.MonkeyPatch) -> None:
    """Only the overwritten step itself is given up, not the ones whose stack needs its frame."""
    from retrograd.replay.starts import Starts

    def close(self: Starts, ring: Ring, change: Any) -> Any:
        slot = np.concatenate([
            ring.slot(row, np.arange(first, end))
            for row, (first, end) in enumerate(zip(change.oldest_before, change.oldest, strict=True))
        ])  # fmt: skip
        slot = slot[self.valid[slot]]
        self.valid[slot] = False
        self.count -= len(slot)
        return slot

    patch.setattr(Starts, "close", close)


MUTANTS = [
    overwrite_final_observation,
    let_stacks_cross_games,
    bootstrap_through_terminals,
    discount_short_tails_fully,
    drop_tails,
    sum_across_lost_lives,
    accept_stale_priorities,
    insert_without_priority,
    average_duplicates,
    keep_lost_stacks,
]
PROGRAM = [
    ("play", 20, 1, 1),
    ("sample", 60, 3, 0),
    ("learn", 9, 5, 30),
    ("play", 25, 2, 1),
    ("learn", 9, 9, 0),
    ("learn", 9, 6, 8),
    ("sample", 9, 7, 0),
    ("sample", 9, 7, 0),
    ("sample", 60, 8, 0),
]


def test_program_of_the_mutants_is_green_without_them(tmp_path: Any) -> None:
    run(("raw", "prioritized", "n_step"), PROGRAM, tmp_path)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_mutant_goes_red(mutant: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    mutant(monkeypatch)
    with pytest.raises(AssertionError):
        run(("raw", "prioritized", "n_step"), PROGRAM, tmp_path)
