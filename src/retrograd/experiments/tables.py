"""Comparisons and published figures as text for people, and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from retrograd.experiments.figures.style import count_frames

MOST_PUBLISHED = 6
MOST_PAIRS = 10


def comparison_text(table: Mapping[str, Any]) -> str:
    """A table for each game and protocol, then the aggregates over games and the notes."""
    parts = []
    for panel in table["panels"]:
        head = ("config", "seeds", "frames", "median [quartiles]", "IQM [interval]", "human-normalized")
        rows = [head, *(_group_row(group) for group in panel["groups"]), *_published_rows(panel)]
        title = " · ".join(filter(None, (panel["game"], panel["protocol"])))
        parts.append(f"{title}: {table['measured']}\n{align(rows)}")
        if "frames_to_threshold" in panel["groups"][0]:
            parts.append(_threshold_text(panel["groups"]))
        if panel["improvement"]:
            parts.append(_improvement_text(panel["improvement"]))
    for entry in table["across_games"]:
        names = ("iqm", "median", "mean", "optimality_gap")
        scores = entry["human_normalized"].items()
        lines = [(label, *(_bounds(values[name]) for name in names)) for label, values in scores]
        title = f"human-normalized, {len(entry['games'])} games, {entry['protocol']}"
        parts.append(f"{title}\n{align([('config', 'IQM', 'median', 'mean', 'optimality gap'), *lines])}")
    if table.get("plots"):
        parts.append(f"plots: {Path(table['plots'][0]).parent}")
    if table["notes"]:
        parts.append("\n".join(f"note: {note}" for note in table["notes"]))
    return "\n\n".join(parts)


def comparison_rows(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One row a run, for a spreadsheet."""
    return [
        {
            "game": panel["game"],
            "protocol": panel["protocol"],
            "config": group["label"],
            "metric": table["metric"],
            **run,
        }
        for panel in table["panels"]
        for group in panel["groups"]
        for run in group["runs"]
    ]


def reference_text(table: Mapping[str, Any]) -> str:
    """What is published about one game, by protocol."""
    parts = [table["game"]]
    if table["baseline"] is not None:
        record = table["human_world_record"]
        ends = f", record {record:,.10g}" if record is not None else ""
        baseline = table["baseline"]
        parts[0] += f": random {baseline['random']:,.10g}, human {baseline['human']:,.10g}{ends}"
    for name, protocol in table["protocols"].items():
        rows: list[tuple[str, ...]] = [("curve", "source", "seeds", "frames", "return at the end")]
        rows += [_curve_row(curve) for curve in table["curves"] if curve["protocol"] == name]
        finals: list[tuple[str, ...]] = [("final score", "source", "score", "frames", "human-normalized")]
        finals += [_score_row(score) for score in table["final_scores"] if score["protocol"] == name]
        blocks = [align(block) for block in (rows, finals) if len(block) > 1]
        heading = f"{name} ({protocol['family'].replace('_', ' ')}, {protocol['measured']})"
        parts.append("\n".join([heading, *blocks]))
    if not table["protocols"]:
        parts.append(f"nothing under {table['protocol']}")
    origins = [f"{source['label']}: {source['origin']} ({source['license']})" for source in table["sources"]]
    if table["baseline_source"]:
        origins.append(f"random, human: {table['baseline_source']}")
    parts.append("sources\n" + "\n".join(f"  {origin}" for origin in origins))
    parts.append("Figures of different protocols do not measure the same thing: compare within one.")
    return "\n\n".join(parts)


def games_text(games: Sequence[Mapping[str, Any]]) -> str:
    rows = [("game", "curves", "final scores", "human score")]
    rows += [(g["game"], str(g["curves"]), str(g["final_scores"]), "yes" if g["baseline"] else "no") for g in games]
    return align(rows)


def align(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; numbers stay as they were written."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(f"  {line}" for line in lines)


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _group_row(group: Mapping[str, Any]) -> tuple[str, ...]:
    normalized = group["human_normalized"]
    return (
        group["label"] + (" (training return)" if group["scored_on"] != "evaluation" else ""),
        str(group["seeds"]),
        count_frames(group["env_frames"]).removesuffix(" frames"),
        number(group["median"]) + (f" [{number(group['q1'])}, {number(group['q3'])}]" if group["seeds"] > 1 else ""),
        _bounds(group["iqm"]),
        "–" if normalized is None else f"{normalized:.3f}",
    )


def _published_rows(panel: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Curves at the frames the runs have reached; where none goes that far back, nothing."""
    curves = [curve for curve in panel.get("reference", {}).get("curves", ()) if curve["mean_return"] is not None]
    own = {group["algorithm"].lower().replace("_", "") for group in panel["groups"]}
    curves.sort(key=lambda curve: curve["algorithm"].lower().replace(" ", "").replace("-", "") not in own)
    frames = panel.get("reference", {}).get("at_env_frames", 0)
    return [
        (
            f"· {curve['algorithm']}, {curve['source_label']}, {curve['measured']}",
            str(curve["seeds"] or "?"),
            count_frames(frames).removesuffix(" frames"),
            f"{number(curve['mean_return'])} (published mean)",
            "–",
            "–" if panel["baseline"] is None else f"{_normalized(curve['mean_return'], panel['baseline']):.3f}",
        )
        for curve in curves[:MOST_PUBLISHED]
    ]


def _threshold_text(groups: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for group in groups:
        found = group["frames_to_threshold"]
        median = found["median_frames"]
        when = "fewer than half got there" if median is None else f"median {count_frames(median)}"
        lines.append(
            f"  {group['label']}: {found['reached']} of {group['seeds']} reached {found['threshold']:g}, {when}"
        )
    return "frames to threshold\n" + "\n".join(lines)


def _improvement_text(pairs: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for pair in pairs[:MOST_PAIRS]:
        p_value = pair["permutation_p_value"]
        ends = "" if p_value is None else f", permutation p = {p_value:.3f}"
        lines.append(f"  {pair['first']} > {pair['second']}: {_bounds(pair)}{ends}")
    if len(pairs) > MOST_PAIRS:
        lines.append(f"  … {len(pairs) - MOST_PAIRS} more pairs in the JSON")
    return "probability of improvement\n" + "\n".join(lines)


def _curve_row(curve: Mapping[str, Any]) -> tuple[str, ...]:
    span = f"{count_frames(curve['first_frame']).removesuffix(' frames')} to {count_frames(curve['last_frame'])}"
    seeds = str(curve["seeds"] or "?")
    return f"{curve['algorithm']}", curve["source_label"], seeds, span, number(curve["mean_return"][-1])


def _score_row(score: Mapping[str, Any]) -> tuple[str, ...]:
    value = number(score["score"]) + ("" if score["std"] is None else f" ± {number(score['std'])}")
    frames = "?" if score["env_frames"] is None else count_frames(score["env_frames"])
    normalized = score["human_normalized"]
    return score["algorithm"], score["source_label"], value, frames, "–" if normalized is None else f"{normalized:.3f}"


def _bounds(interval: Mapping[str, Any] | None) -> str:
    if interval is None:
        return "–"
    if interval["low"] is None:
        return number(interval["point"])
    return f"{number(interval['point'])} [{number(interval['low'])}, {number(interval['high'])}]"


def _normalized(score: float, baseline: Mapping[str, float]) -> float:
    return (score - baseline["random"]) / (baseline["human"] - baseline["random"])


def number(value: float) -> str:
    """Three or four digits: what a score of a few seeds can carry."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 10 else f"{value:.3g}"
