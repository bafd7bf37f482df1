"""A game explained: pictures, what the agent thought of them and looked at, and where its play takes it.

``explain_game`` plays as ``trace_game`` does and leaves a folder of plain files:

game.json      which game, agent, checkpoint and score; which maps there are, at which steps, and how large
game.csv, .npz what was done, what it paid and what the agent expected, as ``q_values`` writes it
frames.npz     frame_000000 … [H, W, 3] uint8: what a human saw before each step
saliency.npz   perturbation_000000 … [H, W] uint8: a map in 255ths of its largest value
visits.npz     share [Y, X] and the edges of its cells
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from retrograd.core.errors import UsageError, suggest
from retrograd.core.protocols import Agent
from retrograd.core.types import Array, ArraySpec, EnvSpec, Obs
from retrograd.experiments.arrays import ArrayWriter
from retrograd.experiments.q_values import (
    Counting,
    Opinion,
    Sight,
    Trace,
    network_of,
    outputs_of,
    trace_game,
    write_trace,
)
from retrograd.experiments.visits import Heatmap, Visits, is_spatial, newest_frames
from retrograd.networks.saliency import (
    BOARD_PATCHES,
    Maps,
    Outputs,
    Patches,
    gradient_maps,
    integrated_maps,
    perturbation_maps,
)
from retrograd.training.state import reset_rows
from retrograd.training.video import Viewer

FORMAT = 1
KINDS = ("perturbation", "gradient", "integrated")
DEFAULT_KINDS = ("perturbation", "gradient")
MOST_STEPS = 10_000  # of one game, and of the heatmap: about 300 MB of files, 70 MB of memory


@dataclass(frozen=True, slots=True)
class Wishes:
    """How much is explained. ``saliency`` None: the usual maps where observations are pictures or boards, else none."""

    max_steps: int = 400
    every_steps: int = 4  # from one map to the next
    saliency: tuple[str, ...] | None = None
    visit_steps: int = 2000

    def __post_init__(self) -> None:
        for name, option, least in (
            ("max_steps", "steps", 1),
            ("every_steps", "every", 1),
            ("visit_steps", "visit-steps", 0),
        ):
            value = getattr(self, name)
            if not least <= value <= MOST_STEPS:
                raise UsageError(f"--{option} is {value}: must be from {least} to {MOST_STEPS}")
        for kind in self.saliency or ():
            if kind not in KINDS:
                raise UsageError(
                    f"--saliency {kind!r} is unknown: there are {', '.join(KINDS)} and none.{suggest(kind, KINDS)}"
                )

    def kinds(self, spec: EnvSpec) -> tuple[str, ...]:
        if is_spatial(spec.obs):
            return DEFAULT_KINDS if self.saliency is None else tuple(dict.fromkeys(self.saliency))
        if self.saliency:
            shape = spec.obs.shape if isinstance(spec.obs, ArraySpec) else "several arrays"
            raise UsageError(
                f"--saliency {','.join(self.saliency)}: maps are laid over pictures or boards, and an observation of "
                f"{spec.name} is {shape}; leave it out"
            )
        return ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """What ``explain_game`` found out; the large parts are in ``folder``."""

    folder: Path
    trace: Trace
    pictures: int  # one for each step, or 0
    fps: float  # steps in a second of play
    map_steps: tuple[int, ...]
    largest: dict[str, list[float]]  # of each map, by its name: raw, in the square of the output or its slope
    visits: Heatmap

    def describe(self) -> dict[str, Any]:
        """What game.json tells besides where the agent comes from."""
        return {
            "format": FORMAT,
            "action_names": list(self.trace.action_names),
            "pictures": self.pictures,
            "steps_per_second": self.fps,
            "saliency": {"steps": list(self.map_steps), "largest": self.largest},
            "visits": {
                "kind": self.visits.kind,
                "steps": self.visits.steps,
                "x_label": self.visits.x_label,
                "y_label": self.visits.y_label,
            },
            **self.trace.summary(),
        }


def explain_game(
    agent: Agent,
    viewer: Viewer,
    folder: Path,
    *,
    step: int,
    counting: Counting,
    wishes: Wishes,
    tell: Callable[[str], None] = lambda _: None,
) -> Explanation:
    """Play one game, then on for the heatmap, and write what was seen into ``folder``, which is there and empty."""
    kinds = wishes.kinds(viewer.spec)
    network_of(agent)
    visits = Visits(viewer.spec)
    with ArrayWriter(folder / "frames.npz") as frames, ArrayWriter(folder / "saliency.npz") as maps:
        pictures = _Pictures(frames, viewer.spec)
        cartographer = _Cartographer(agent, viewer.spec, kinds, wishes.every_steps, maps)
        last = _Last()

        def witness(sight: Sight) -> None:
            pictures.see(sight)
            cartographer.see(sight)
            visits.see(sight.obs)
            last.see(sight)
            tell(f"step {sight.step + 1} of at most {wishes.max_steps}")

        trace = trace_game(
            agent,
            viewer,
            step=step,
            counting=counting,
            max_steps=wishes.max_steps,
            witness=witness,
        )
        pictures.finish()
    state = agent.initial_state(1) if trace.score is not None else last.state_after(agent, step)
    _play_on(agent, viewer, state, visits, wishes.visit_steps, step, tell)
    heatmap = visits.heatmap()
    write_trace(trace, folder, "game")
    with ArrayWriter(folder / "visits.npz") as file:
        for name in ("share", "x_edges", "y_edges", "background"):
            if getattr(heatmap, name) is not None:
                file.add(name, getattr(heatmap, name))
    return Explanation(
        folder=folder,
        trace=trace,
        pictures=pictures.written,
        fps=max(1.0, float(viewer.fps) * ((len(trace.value) - 1) / pictures.seen if pictures.seen else 1)),
        map_steps=tuple(cartographer.steps),
        largest=cartographer.largest,
        visits=heatmap,
    )


def _play_on(
    agent: Agent, viewer: Viewer, state: Any, visits: Visits, goal: int, step: int, tell: Callable[[str], None]
) -> None:
    """Further steps, of further games where one ends, until the heatmap has seen ``goal``."""
    fresh = agent.initial_state(1)
    while len(visits) < goal:
        visits.see(viewer.observe())
        decision = agent.act(viewer.observe(), state, step=step, explore=False)
        viewer.send(decision.action)
        answer = viewer.recv()
        viewer.pop_frames()  # or they would pile up
        state = reset_rows(decision.state, fresh, answer.reset)
        tell(f"step {len(visits)} of {goal} for the heatmap")


class _Pictures:
    """Writes one picture for each step: the last one drawn before it.

    Some environments show a game's first picture only with the second, so that step 0 waits for it. Where nothing is
    drawn at all, observations that are pictures or boards stand in.
    """

    def __init__(self, file: ArrayWriter, spec: EnvSpec) -> None:
        self._file, self._spec = file, spec
        self._waiting: Array | None = None  # the stand-in of step 0
        self._last: Array | None = None
        self.seen = self.written = 0  # seen: between two steps

    def see(self, sight: Sight) -> None:
        self.seen += len(sight.pictures) if sight.step else 0  # the first come with doing nothing at the start
        if sight.step == 0 and not len(sight.pictures):
            self._waiting = self._stand_in(sight.obs)
            return
        if sight.step == 1 and not self.written:
            self._waiting = sight.pictures[0] if len(sight.pictures) else self._waiting
            self.finish()
        if len(sight.pictures):
            self._last = sight.pictures[-1]
        picture = self._last if self._last is not None else self._stand_in(sight.obs)
        if picture is not None:
            self._write(picture)

    def finish(self) -> None:
        """Step 0, if it is still waiting: the game was over before anything was drawn."""
        if self._waiting is not None:
            self._write(self._waiting)
            self._waiting = None

    def _write(self, picture: Array) -> None:
        self._file.add(f"frame_{self.written:06d}", picture)
        self.written += 1

    def _stand_in(self, obs: Obs) -> Array | None:
        if not is_spatial(self._spec.obs):
            return None
        gray = newest_frames(np.asarray(obs)[0], self._spec.frame_stack).max(axis=0)
        stacked: Array = np.repeat(gray[..., None], 3, axis=2)
        return stacked


@dataclass
class _Cartographer:
    """Draws the saliency maps of every so many steps."""

    agent: Agent
    spec: EnvSpec
    kinds: Sequence[str]
    every_steps: int
    file: ArrayWriter
    steps: list[int] = field(default_factory=list)
    largest: dict[str, list[float]] = field(default_factory=dict)

    def see(self, sight: Sight) -> None:
        if not self.kinds or sight.step % self.every_steps:
            return
        self.steps.append(sight.step)
        for name, drawn in saliency_maps(self.agent, sight.obs, sight.state, sight.opinion, self.kinds).items():
            largest = float(drawn.max())
            self.largest.setdefault(name, []).append(largest)
            shares = drawn / largest if largest > 0 else drawn
            self.file.add(f"{name}_{sight.step:06d}", np.round(255 * shares).astype(np.uint8))


def saliency_maps(
    agent: Agent, obs: Obs, state: Any, opinion: Opinion, kinds: Sequence[str] = DEFAULT_KINDS
) -> dict[str, Array]:
    """[H, W] raw maps of one observation [1, C, H, W]: of the choice by the kind's name, of the critic as ``…_value``.

    Slopes are those of the preferred action.
    """
    assert isinstance(obs, np.ndarray)
    outputs = outputs_of(agent, state)
    device = next(network_of(agent).parameters()).device
    image = torch.from_numpy(obs).to(device).float()
    preference = opinion.q if opinion.q is not None else opinion.probability
    action = None if preference is None else int(preference.argmax())
    patches = BOARD_PATCHES if obs.dtype == np.bool_ else Patches()
    found = {}
    for kind in kinds:
        for name, drawn in _draw(kind, outputs, image, action, patches).items():
            found[kind if name == "choice" else f"{kind}_{name}"] = drawn.float().cpu().numpy()
    return found


def _draw(kind: str, outputs: Outputs, image: torch.Tensor, action: int | None, patches: Patches) -> Maps:
    if kind == "perturbation":
        return perturbation_maps(outputs, image, patches)
    return gradient_maps(outputs, image, action) if kind == "gradient" else integrated_maps(outputs, image, action)


class _Last:
    """The last step of a game that was left early, to know with which memory it goes on."""

    def __init__(self) -> None:
        self._sight: Sight | None = None

    def see(self, sight: Sight) -> None:
        if sight.state is not None:
            # the environment may write the next observation over this one
            obs = {k: v.copy() for k, v in sight.obs.items()} if isinstance(sight.obs, dict) else sight.obs.copy()
            self._sight = Sight(sight.step, obs, sight.state, (), sight.opinion)

    def state_after(self, agent: Agent, step: int) -> Any:
        if self._sight is None:
            return None
        return agent.act(self._sight.obs, self._sight.state, step=step, explore=False).state
