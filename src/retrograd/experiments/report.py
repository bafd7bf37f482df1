"""The report of a sweep: one HTML file with everything in it, to be kept, mailed or printed."""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from retrograd.core.errors import UsageError
from retrograd.experiments.definition import Definition
from retrograd.experiments.groups import Group, group_rows
from retrograd.experiments.ledger import State
from retrograd.experiments.sweep_plots import METRIC_NAMES, draw_sweep, group_name, save_figures
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
img { max-width: 100%; background: white; border-radius: 6px; }
.wide { overflow-x: auto; }
@media print { a { color: inherit; } .wide { overflow: visible; } }
"""


def write_report(folder: Path, definition: Definition, rows: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Draw the plots and write ``report.html``; without matplotlib the report says how to get the pictures."""
    groups = group_rows(rows, definition.metric)
    paths: list[Path] = []
    note = ""
    try:
        figures = draw_sweep(folder, definition, groups)
        if definition.series is not None:
            from retrograd.experiments.ablation_plots import draw_ablation

            figures |= draw_ablation(folder, definition.series, groups, definition.metric)
        paths = save_figures(figures, folder / "plots") if figures else []
    except UsageError as error:
        note = str(error)
    text = make_report(folder.name, definition, groups, rows, [path for path in paths if path.suffix == ".svg"], note)
    durable.write_text(folder / FILE, text)
    return [folder / FILE, *paths]


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
        f"<p>{len(rows)} runs: {counts}. Scores are the {METRIC_NAMES[definition.metric]}.</p>",
        f"<p><code>{html.escape(_command(definition))}</code></p>",
        *_findings(definition, groups),
        "<h2>Settings</h2>",
        _group_table(groups),
        *(_picture(path) for path in pictures),
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
    best = scored[0]
    sentences = [f"Best is <b>{html.escape(group_name(best))}</b> with {_figure(best.mean)}"]
    first = next((group for group in scored if group.trial == 0), None)
    if first is not None and first is not best:
        sentences.append(f"trial 0 had {_figure(first.mean)}")
    few = min(len(group.scores) for group in scored) < 3 and definition.search == "grid"
    caution = " With fewer than three seeds a difference may be chance." if few else ""
    return [f"<p>{'; '.join(sentences)}.{caution}</p>"]


def _group_table(groups: Sequence[Group]) -> str:
    lines = []
    for group in groups:
        interval = group.iqm()
        shown = (
            "" if interval is None else f"{_figure(interval.point)} [{_figure(interval.low)}, {_figure(interval.high)}]"
        )
        cells = [group_name(group), group.states, _figure(group.mean), _figure(group.median), shown]
        lines.append(_cells("td", cells))
    return _table(_cells("th", ["setting", "runs", "mean", "median", "IQM [95 % interval]"]), lines)


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
    data = base64.b64encode(path.read_bytes()).decode()
    title = html.escape(path.stem.replace("_", " "))
    return f'<h2>{title.capitalize()}</h2><img alt="{title}" src="data:image/svg+xml;base64,{data}">'


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
