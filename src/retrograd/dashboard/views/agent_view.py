"""Agent view: a game of a checkpoint step by step, what the agent looked at, preferred and expected."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from retrograd.dashboard import charts
from retrograd.dashboard.arrays import Unreadable
from retrograd.dashboard.context import Context, choose_run, quote
from retrograd.dashboard.explained import ExplainedGame, Visited, explained_games, read_game, video_of
from retrograd.dashboard.overlay import SCALE, enlarge, lay_over

TITLE, ICON = "Agent view", ":material/visibility:"
TAKEN, OTHER = charts.PALETTE[3], charts.PALETTE[0]
NO_MAP = "none"


def show(context: Context) -> None:
    which, checkpoint, over, how = st.columns([3, 2, 2, 2])
    with which:
        explained = {name: explained_games(context.folder(name)) for name in context.names}
        first = next((number for number, games in enumerate(explained.values()) if games), 0)
        run = choose_run(context, "agent_run", index=first)
    games = explained[run]
    if not games:
        st.info(f"{quote(run)} has no explained game yet. Make one with")
        st.code(f"retrograd explain {_word(context.reader.folder.root / run)}", language="bash")
        return
    key = f"agent_game_{run}"
    if st.session_state.get(key) not in games:
        st.session_state[key] = list(games)[-1]
    name = checkpoint.selectbox("Checkpoint", list(games), key=key, format_func=games.__getitem__)
    folder = context.folder(run)
    try:
        game = read_game(folder, name)
        _game(game, f"{run}/{name}", over, how)
    except Unreadable as error:
        st.warning(
            f"This game cannot be shown: {quote(str(error))}. `retrograd explain … --replace` makes it anew.",
            icon=":material/warning:",
        )
        return
    seen, film = st.columns(2)
    with seen:
        _visits(game.visited)
    with film:
        video = video_of(folder, name)
        if video is not None:
            st.subheader("As a video")
            st.video(str(video))


def _game(game: ExplainedGame, key: str, over: Any, how: Any) -> None:
    kind = over.selectbox(
        "Saliency", [NO_MAP, *game.largest], index=min(1, len(game.largest)), key=f"agent_kind_{key}", format_func=_kind
    )
    opacity = how.slider("Opacity", 0.0, 1.0, 0.75, 0.05, key="agent_opacity", disabled=kind == NO_MAP)
    step = st.slider("Step of the game", 0, game.length - 1, key=f"agent_step_{key}") if game.length > 1 else 0
    screen, actions = st.columns([5, 6])
    with screen:
        _screen(game, step, kind, opacity)
    with actions:
        _facts(game, step)
        _actions(game, step, key)
        _distribution(game, step, key)
    _value(game, step, key)


def _screen(game: ExplainedGame, step: int, kind: str, opacity: float) -> None:
    picture = game.picture(step)
    if picture is None:
        st.caption("This environment draws no pictures.")
        return
    large = enlarge(picture)
    shares = game.map_of(kind, step) if kind != NO_MAP else None
    if shares is None:  # another step's map would point at where things were then
        st.image(large, width="stretch")
        if kind != NO_MAP and len(game.map_steps):
            around = " and ".join(str(at) for at in game.maps_around(step))
            st.caption(f"No map of this step; there are those of {around}. `retrograd explain … --every 1` makes all.")
        return
    st.image(lay_over(large, shares, opacity), width="stretch")
    size, usual = game.size_of(kind, step), float(np.quantile(game.largest[kind], 0.9))
    st.caption(
        f"{_kind(kind)} of step {step}; its largest value is {size:.2g}. Colors reach from 0 to {usual:.2g}, which "
        "nine in ten maps of this game stay below."
    )


def _facts(game: ExplainedGame, step: int) -> None:
    taken, value, reward, score = st.columns(4)
    if game.action_names:
        word = game.action_names[int(game.action[step])]
    else:
        word = " ".join(f"{number:+.2f}" for number in np.ravel(game.action[step])[:4])
    taken.metric("Action", word)
    value.metric("Value", f"{game.value[step]:.3g}")
    reward.metric("Reward", f"{game.reward[step]:.3g}")
    final = game.facts.get("score")
    known = isinstance(final, int | float)
    score.metric(
        "Score", f"{final:.4g}" if known else "open", help=None if known else "the game was left before its end"
    )


def _actions(game: ExplainedGame, step: int, key: str) -> None:
    if game.preference is None:
        return
    heights = game.preference[step]
    taken = int(game.action[step])
    chart = charts.figure(game.preferred, "", height=90 + 26 * len(heights))
    low = 0.0
    if game.preferred == "probability":
        chart.update_xaxes(range=[0, 1.12], tickformat=".0%")
    else:  # differences between actions are small beside the value itself
        spread = max(float(heights.max() - heights.min()), 1e-3)
        low = float(heights.min()) - 0.4 * spread
        chart.update_xaxes(range=[low, float(heights.max()) + 0.25 * spread])
    chart.add_trace(
        go.Bar(
            x=heights - low,
            base=low,
            y=[charts.plain(name) for name in game.action_names],
            orientation="h",
            marker_color=[TAKEN if action == taken else OTHER for action in range(len(heights))],
            text=[
                f"{100 * height:.0f} %" if game.preferred == "probability" else f"{height:.3g}" for height in heights
            ],
            textposition="outside",
            cliponaxis=False,
            customdata=heights,
            hovertemplate="%{y}: %{customdata:.4g}<extra></extra>",
        )
    )
    chart.update_yaxes(autorange="reversed", showgrid=False)
    chart.update_layout(showlegend=False, hovermode="closest", bargap=0.25)
    st.plotly_chart(chart, key=f"agent_actions_{key}", theme="streamlit")


def _distribution(game: ExplainedGame, step: int, key: str) -> None:
    """Probabilities over a fixed support, or of quantiles the share of returns below; the action taken stands out."""
    if game.places is None or game.mass is None:
        return
    places, mass, taken = game.places[step], game.mass[step], int(game.action[step])
    fixed = bool((places == places[:1]).all())
    chart = charts.figure("return", "probability" if fixed else "share of returns below", height=260)
    order = [action for action in range(len(places)) if action != taken] + [taken]  # the one taken on top
    for action in order:
        line: dict[str, Any] = {
            "color": TAKEN if action == taken else charts.faded(OTHER, 0.5),
            "shape": "hvh" if fixed else "hv",
        }
        if fixed:
            x, y = places[action], mass[action]
        else:
            by_place = np.argsort(places[action])
            x, y = places[action][by_place], np.cumsum(mass[action][by_place])
        name = charts.plain(game.action_names[action])
        filled = {"fill": "tozeroy", "fillcolor": charts.faded(TAKEN, 0.25)} if fixed and action == taken else {}
        line["width"] = 2.5 if action == taken else 1
        chart.add_trace(go.Scatter(x=x, y=y, name=name, mode="lines", line=line, **filled))
    if fixed and (mass > 0.01).any():
        shown = places[0][(mass > 0.01).any(axis=0)]
        gap = float(places[0, 1] - places[0, 0]) if places.shape[1] > 1 else 1.0
        chart.update_xaxes(range=[float(shown.min()) - 2 * gap, float(shown.max()) + 2 * gap])
    chart.update_layout(showlegend=False, hovermode="closest")
    st.plotly_chart(chart, key=f"agent_distribution_{key}", theme="streamlit")


def _value(game: ExplainedGame, step: int, key: str) -> None:
    chart = charts.figure("step of the game", "return", height=260)
    time = np.arange(game.length)
    if np.isfinite(game.return_to_come).any():
        charts.add_line(chart, time, game.return_to_come, "return that came", charts.GRAY, width=1.5)
    charts.add_line(chart, time, game.value, "value", OTHER)
    paid = np.flatnonzero(game.reward)
    if len(paid):
        chart.add_trace(
            go.Scatter(
                x=paid,
                y=game.value[paid],
                name="reward",
                mode="markers",
                marker={"symbol": "star", "size": 9, "color": charts.PALETTE[1]},
                customdata=game.reward[paid],
                hovertemplate="reward %{customdata:.3g}",
            )
        )
    chart.add_vline(x=step, line={"color": TAKEN, "width": 1, "dash": "dot"})
    charts.add_marks(chart, [step], [game.value[step]], "this step", TAKEN)
    chart.update_xaxes(range=[-0.5, game.length - 0.5])
    st.plotly_chart(chart, key=f"agent_value_{key}", theme="streamlit")


def _visits(visited: Visited | None) -> None:
    st.subheader("Visited states")
    if visited is None:
        st.caption("There is no heatmap of visited states, or it cannot be read.")
        return
    chart = charts.figure(visited.x_label, visited.y_label, height=430)
    share = np.where(visited.share > 0, visited.share, np.nan)
    if visited.background is not None:
        gray = [[0, "rgb(0,0,0)"], [1, "rgb(255,255,255)"]]
        chart.add_trace(
            go.Heatmap(z=visited.background, colorscale=gray, zmin=0, zmax=255, showscale=False, opacity=0.35,
                       hoverinfo="skip")
        )  # fmt: skip
        chart.update_yaxes(autorange="reversed", scaleanchor="x", constrain="domain", showgrid=False)
        chart.update_xaxes(constrain="domain")
        axes: dict[str, Any] = {}
    else:
        axes = {"x": visited.x_edges, "y": visited.y_edges}
    least = int(np.floor(np.log10(1 / visited.steps)))
    ticks = list(range(least, 1))
    chart.add_trace(
        go.Heatmap(
            z=np.log10(share),
            customdata=share,
            colorscale=SCALE,
            zmin=least - 1,  # even once is told from never, on a dark page
            zmax=0,
            hovertemplate="%{customdata:.2%} of the steps<extra></extra>",
            colorbar={
                "title": "share of steps",
                "tickvals": ticks,
                "ticktext": [f"{10.0**tick:.4g}" for tick in ticks],
            },
            **axes,
        )
    )
    chart.update_layout(hovermode="closest")
    st.plotly_chart(chart, key="agent_visits", theme="streamlit")
    what = (
        "in which something other than the background was there" if visited.background is not None else "in each cell"
    )
    st.caption(f"share of {visited.steps:,} steps of play {what}")


def _kind(kind: str) -> str:
    """``perturbation_value`` → what a reader calls it."""
    name, _, output = kind.partition("_")
    return kind if kind == NO_MAP else f"{name} (critic)" if output == "value" else name


def _word(path: Any) -> str:
    """A path as a shell takes it."""
    return shlex.quote(str(path))
