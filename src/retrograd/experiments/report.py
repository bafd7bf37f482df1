"""The report of a sweep: one HTML file with everything in it, to be kept, mailed or printed."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from retrograd.core.errors import UsageError
from retrograd.experiments.definition import Definition
from retrograd.experiments.figures.ablation import draw_ablation
from retrograd.experiments.figures.sweep import draw_curves, draw_scores, draw_sensitivity, group_name
from retrograd.experiments.groups import Group, by_task, group_rows, is_of_task
from retrograd.experiments.ledger import State
from retrograd.experiments.measures import METRICS
from retrograd.experiments.plots import Plotter
from retrograd.experiments.results import read_curve
from retrograd.training import durable

FILE = "report.html"
RUN_COLUMNS = (
    "run", "state", "env_frames", "final_score", "best_score", "auc",
    "wall_seconds", "steps_per_second", "starts", "commit",
)  # fmt: skip
STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #8886; text-align: right; }
th:first-child, td:first-child { text-align: left; }
tr.failed td { color: #c22; }
code { background: #8882; padding: .1rem .3rem; border-radius: 3px; overflow-wrap: anywhere; }
img { max-width: 100%; border-radius: 6px; }
.wide { overflow-x: auto; }
@media print { a { color: inherit; } .wide { overflow: visible; } }
"""


def write_report(folder: Path, definition: Definition, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Draw the plots and write ``report.html``; without matplotlib the report says how to get the pictures."""
    groups = group_rows(rows, definition.metric)
    paths: list[Path] = []
    note = ""
    try:
        plotter = draw_plots(folder, definition, groups)
        paths = plotter.save_plots(folder / "plots") if plotter.figures else []
    except UsageError as error:
        note = str(error)
    durable.write_text(folder / FILE, make_report(folder.name, definition, groups, rows, paths, note))
    return [folder / FILE, *paths]


def draw_plots(folder: Path, definition: Definition, groups: Sequence[Group]) -> Plotter:
    """Whatever there is to draw: curves, scores, the searched keys, the ablation of each environment."""
    plotter = Plotter()
    curves = {str(row["run"]): read_curve(folder / "runs" / str(row["run"])) for group in groups for row in group.rows}
    scored = [group for group in groups if group.scores]
    keys = [key for key in (*definition.space.lists, *definition.space.ranges) if "." in key and not is_of_task(key)]
    metric, series = definition.metric, definition.series
    if series is not None:
        for setting, members in _by_setting(groups).items():
            name = "_".join(["ablation", *(value.replace("/", "-") for value in setting)])
            title = ", ".join(setting)
            plotter.add(
                name, partial(draw_ablation, series=series, groups=members, curves=curves, metric=metric, title=title)
            )
    elif any(len(curve.frames) for curve in curves.values()):
        plotter.add("learning_curves", lambda theme: draw_curves(theme, groups, curves))
    if scored:
        plotter.add("scores", lambda theme: draw_scores(theme, scored, metric))
    if scored and keys:
        plotter.add("sensitivity", lambda theme: draw_sensitivity(theme, scored, keys, definition))
    return plotter


def _by_setting(groups: Sequence[Group]) -> dict[tuple[str, ...], list[Group]]:
    """The variants of an ablation together, apart from what else was varied."""
    found: dict[tuple[str, ...], list[Group]] = {}
    for group in groups:
        found.setdefault(tuple(value for key, value in group.settings.items() if key != "variant"), []).append(group)
    return found


def make_report(
    name: str,
    definition: Definition,
    groups: Sequence[Group],
    rows: Sequence[Mapping[str, Any]],
    pictures: Sequence[Path],
    note: str = "",
) -> str:
    states = [row["state"] for row in rows]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    parts = [
        f"<h1>{html.escape(name)}</h1>",
        f"<p>{len(rows)} runs: {counts}. Scores are the {METRICS[definition.metric]}.</p>",
        f"<p><code>{html.escape(_command(definition))}</code></p>",
        *_findings(definition, groups),
        "<h2>Settings</h2>",
        _group_table(groups),
        *(_picture(path) for path in pictures if path.suffix == ".svg" and not path.stem.endswith("_dark")),
        f"<p>{html.escape(note)}</p>" if note else "",
        "<h2>Runs</h2>",
        _run_table(rows),
        *_failures(rows),
    ]
    body = "\n".join(part for part in parts if part)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(name)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


def _command(definition: Definition) -> str:
    words = ["retrograd sweep", *(f"'{word}'" if "(" in word else word for word in definition.words)]
    if definition.series is not None:
        words.insert(1, f"ablation={definition.series.name}")
    if definition.search != "grid":
        words.append(f"--search {definition.search} --trials {definition.trials}")
        words.append(f"--search-seed {definition.search_seed}")
    words.append(f"--metric {definition.metric}")
    return " ".join([*words, *(["--prune"] if definition.prune else [])])


def _findings(definition: Definition, groups: Sequence[Group]) -> list[str]:
    """In a sentence or two, what a reader looks for first."""
    scored = [group for group in groups if group.scores]
    if not scored:
        return ["<p>No run has a score yet.</p>"]
    sentences = [_best(task, members) for task, members in by_task(scored).items()]
    few = min(len(group.scores) for group in scored) < 3 and definition.search == "grid"
    caution = " With fewer than three seeds a difference may be chance." if few else ""
    return [f"<p>{' '.join(sentences)}{caution}</p>"]


def _best(task: str, groups: Sequence[Group]) -> str:
    best, first = groups[0], next((group for group in groups if group.trial == 0), None)
    if task and len(groups) == 1:
        return f"On <b>{html.escape(task)}</b> the mean is {_figure(best.mean)}."
    where = f" on <b>{html.escape(task)}</b>" if task else ""
    compared = f"; trial 0 had {_figure(first.mean)}" if first is not None and first is not best else ""
    return f"Best{where} is <b>{html.escape(group_name(best))}</b> with {_figure(best.mean)}{compared}."


def _group_table(groups: Sequence[Group]) -> str:
    lines, several = [], any(group.task for group in groups)
    for group in groups:
        interval = group.iqm()
        shown = (
            "" if interval is None else f"{_figure(interval.point)} [{_figure(interval.low)}, {_figure(interval.high)}]"
        )
        cells = [group_name(group), group.states, _figure(group.mean), _figure(group.median), shown]
        lines.append(_cells("td", [group.task, *cells] if several else cells))
    heads = ["setting", "runs", "mean", "median", "IQM [95 % interval]"]
    return _table(_cells("th", ["environment", *heads] if several else heads), lines)


def _run_table(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        _cells(
            "td", [_figure(row.get(column)) for column in RUN_COLUMNS], "failed" if row["state"] == State.FAILED else ""
        )
        for row in rows
    ]
    return _table(_cells("th", [column.replace("_", " ") for column in RUN_COLUMNS]), lines)


def _failures(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    failed = [row for row in rows if row["state"] == State.FAILED]
    items = "".join(
        f"<li><b>{html.escape(str(row['run']))}</b> (exit code {row['exit_code']}): {html.escape(str(row['reason']))}"
        f" <code>logs/{html.escape(str(row['run']))}.log</code></li>"
        for row in failed
    )
    return [f"<h2>Failed</h2><ul>{items}</ul>"] if failed else []


def _picture(path: Path) -> str:
    """As an image of its own: inlined, the ids of several drawings would get into each other's way."""
    title, dark = html.escape(path.stem.replace("_", " ")), path.with_stem(f"{path.stem}_dark")
    at_night = f'<source media="(prefers-color-scheme: dark)" srcset="{_data(dark)}">' if dark.exists() else ""
    return f'<h2>{title.capitalize()}</h2><picture>{at_night}<img alt="{title}" src="{_data(path)}"></picture>'


def _data(path: Path) -> str:
    return f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _table(head: str, lines: Sequence[str]) -> str:
    return f'<div class="wide"><table><thead>{head}</thead><tbody>{"".join(lines)}</tbody></table></div>'


def _cells(kind: str, values: Sequence[str], style: str = "") -> str:
    cells = "".join(f"<{kind}>{html.escape(value)}</{kind}>" for value in values)
    return f'<tr class="{style}">{cells}</tr>' if style else f"<tr>{cells}</tr>"


def _figure(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value[:12] if len(value) == 40 else value  # a commit is known by its beginning
    number = float(value)
    return f"{number:,.0f}" if number.is_integer() and abs(number) < 1e15 else f"{number:,.4g}"
