"""An agent's expectations along a game, and the distributions behind them at chosen moments."""

from __future__ import annotations

from typing import Any

import numpy as np

from retrograd.core.types import Array
from retrograd.experiments.figures.style import DASHES, Theme, add_legend, new_figure
from retrograd.experiments.q_values import Trace

SHOWN_MASS = 0.01  # atoms below this share of an action's probability only stretch the axis


def draw_trace(theme: Theme, trace: Trace, title: str) -> Any:
    """Expectations against what came; beside it the spread of the action taken, or the policy."""
    beside = trace.mass is not None or trace.probability is not None or not trace.action_names
    figure, axes = new_figure(theme, 2 if beside else 1, height=4.4, width=7.0)
    _draw_values(theme, axes[0], trace)
    axes[0].set_title(title)
    if trace.mass is not None:
        _draw_spread(theme, axes[1], trace)
    elif trace.probability is not None:
        _draw_policy(theme, axes[1], trace)
    elif beside:
        _draw_real_actions(theme, axes[1], trace)
    return figure


def draw_moments(theme: Theme, trace: Trace) -> Any:
    """Picture and opinion, side by side, for each of the trace's moments."""
    figure, axes = new_figure(theme, 2 * len(trace.moments), height=3.0)
    for picture, opinion, moment in zip(axes[::2], axes[1::2], trace.moments, strict=True):
        picture.grid(False)
        picture.set_xticks([])
        picture.set_yticks([])
        picture.spines[:].set_visible(False)
        if moment.picture is not None:
            picture.imshow(moment.picture, interpolation="nearest", aspect="equal")
        # an action is only known by its name where there are some to choose from
        taken = f", takes {trace.action_names[int(trace.action[moment.step])]}" if trace.action_names else ""
        picture.set_title(
            f"{moment.label}: step {moment.step}, value {trace.value[moment.step]:.2f}{taken}", fontsize=9
        )
        draw_opinion(theme, opinion, trace, moment.step)
    if trace.mass is not None:
        add_legend(axes[-1], ncols=min(len(trace.action_names), 4))
    return figure


def _draw_values(theme: Theme, axis: Any, trace: Trace) -> None:
    time = np.arange(len(trace.value))
    if trace.q is None:
        axis.plot(time, trace.value, color=theme.color(0), linewidth=1.2, label="value")
    else:
        for action, name in enumerate(trace.action_names):
            axis.plot(time, trace.q[:, action], label=name, linewidth=1.0, **_line(theme, action))
    if np.isfinite(trace.return_to_come).any():
        axis.plot(time, trace.return_to_come, color=theme.muted, linewidth=1.4, label="return that came", zorder=1)
    paid = np.flatnonzero(trace.reward)
    if len(paid):
        floor = axis.get_ylim()[0]
        axis.plot(paid, np.full(len(paid), floor), "|", color=theme.text, markersize=7, label="reward", clip_on=False)
    axis.set(xlabel="step of the game", ylabel="expected return")
    add_legend(axis, ncols=min(len(trace.action_names) + 2, 6))


def _draw_spread(theme: Theme, axis: Any, trace: Trace) -> None:
    """Bands of the return's distribution under the action taken."""
    assert trace.places is not None
    assert trace.mass is not None
    rows = np.arange(len(trace.value))
    places, mass = trace.places[rows, trace.action], trace.mass[rows, trace.action]  # [T, Z]
    low, quarter, middle, three, high = (quantile(places, mass, share) for share in (0.05, 0.25, 0.5, 0.75, 0.95))
    axis.fill_between(rows, low, high, color=theme.color(0), alpha=0.18, linewidth=0, label="5 to 95 %")
    axis.fill_between(rows, quarter, three, color=theme.color(0), alpha=0.35, linewidth=0, label="25 to 75 %")
    axis.plot(rows, middle, color=theme.color(0), linewidth=1.0, label="median")
    if np.isfinite(trace.return_to_come).any():
        axis.plot(rows, trace.return_to_come, color=theme.muted, linewidth=1.4, label="return that came")
    axis.set(title="distribution of the action taken", xlabel="step of the game", ylabel="return")
    add_legend(axis, ncols=4)


def _draw_policy(theme: Theme, axis: Any, trace: Trace) -> None:
    assert trace.probability is not None
    time = np.arange(len(trace.value))
    for action, name in enumerate(trace.action_names):
        axis.plot(time, trace.probability[:, action], label=name, linewidth=1.0, **_line(theme, action))
    axis.set(title="policy", xlabel="step of the game", ylabel="probability", ylim=(0, 1.02))
    add_legend(axis, ncols=min(len(trace.action_names), 6))


def _draw_real_actions(theme: Theme, axis: Any, trace: Trace) -> None:
    for dimension in range(trace.action.shape[1]):
        axis.plot(trace.action[:, dimension], label=f"action {dimension}", linewidth=1.0, **_line(theme, dimension))
    axis.set(title="actions", xlabel="step of the game", ylabel="action")
    add_legend(axis, ncols=min(trace.action.shape[1], 6))


def draw_opinion(theme: Theme, axis: Any, trace: Trace, step: int) -> None:
    if trace.places is not None and trace.mass is not None:
        _draw_distributions(theme, axis, trace, step)
        return
    heights = trace.q if trace.q is not None else trace.probability
    if heights is None:
        axis.axis("off")
        return
    bars = axis.bar(range(len(trace.action_names)), heights[step], color=theme.faint)
    bars[int(trace.action[step])].set_color(theme.color(1))
    axis.set_xticks(range(len(trace.action_names)), trace.action_names, rotation=60, fontsize=7)
    axis.set_ylabel("expected return" if trace.q is not None else "probability")
    if trace.q is not None:  # differences between actions are small beside the value itself
        low, high = float(heights[step].min()), float(heights[step].max())
        margin = max(high - low, 1e-3)
        axis.set_ylim(low - margin, high + 0.3 * margin)


def _draw_distributions(theme: Theme, axis: Any, trace: Trace, step: int) -> None:
    """Probabilities over a fixed support as stairs; quantiles as the share of returns below."""
    assert trace.places is not None
    assert trace.mass is not None
    fixed = bool((trace.places[step] == trace.places[step, :1]).all())
    for action, name in enumerate(trace.action_names):
        places, mass = trace.places[step, action], trace.mass[step, action]
        style = _line(theme, action)
        if fixed:
            axis.step(places, mass, where="mid", label=name, linewidth=1.2, **style)
        else:
            order = np.sort(places)
            axis.step(order, np.cumsum(mass), where="post", label=name, linewidth=1.2, **style)
        axis.axvline(float((places * mass).sum()), linewidth=0.8, alpha=0.5, **style)
    heavy = (trace.mass[step] > SHOWN_MASS).any(axis=0)
    if fixed and heavy.any():  # many atoms of an untrained agent share the mass evenly: then all are shown
        shown = trace.places[step, 0][heavy]
        gap = float(trace.places[step, 0, 1] - trace.places[step, 0, 0])
        axis.set_xlim(float(shown.min()) - gap, float(shown.max()) + gap)
    axis.set(xlabel="return; a thin line marks the mean", ylabel="probability" if fixed else "share below")


def quantile(places: Array, mass: Array, share: float) -> Array:
    """[T] the return below which ``share`` of each row's mass lies; places [T, Z] in any order."""
    order = np.argsort(places, axis=1)
    below = np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1)
    index = np.minimum((below < share * below[:, -1:]).sum(axis=1), places.shape[1] - 1)
    found: Array = np.take_along_axis(places, order, axis=1)[np.arange(len(places)), index]
    return found


def _line(theme: Theme, index: int) -> dict[str, Any]:
    """Eighteen actions need more than six colors: later rounds are dashed."""
    rounds = index // len(theme.colors)
    return {"color": theme.color(index)} | ({"dashes": DASHES[(rounds - 1) % len(DASHES)]} if rounds else {})
