"""``retrograd zoo``: list, show and run the presets."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from retrograd.cli.words import add_command
from retrograd.core.errors import UsageError

if TYPE_CHECKING:
    from retrograd.experiments.zoo import Preset


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "zoo",
        "list, show and run named presets of game and agent",
        "retrograd zoo list",
        "retrograd zoo list --game pong --json",
        "retrograd zoo show pong_ppo",
        "retrograd zoo run pong_cpu",
        "retrograd zoo run breakout_dqn seed=3 replay.capacity=200000 --frames 10000000",
        "retrograd zoo run pong_ppo --seeds 5",
        "retrograd zoo run atari/benchmark --dry-run",
    )
    parser.set_defaults(run=lambda _: _help(parser))
    verbs = parser.add_subparsers(dest="verb", metavar="list|show|run")
    shown = verbs.add_parser("list", help="all presets, or those of one game or agent")
    shown.add_argument("--game", metavar="NAME", help="such as pong")
    shown.add_argument("--agent", metavar="NAME", help="such as ppo")
    shown.add_argument("--json", action="store_true", help="as JSON")
    shown.set_defaults(run=_list)
    one = verbs.add_parser("show", help="what a preset sets, where it comes from, and the whole config")
    one.add_argument("name", help="a preset or a benchmark")
    one.add_argument("--json", action="store_true", help="as JSON")
    one.set_defaults(run=_show)
    _add_run(verbs)


def _add_run(verbs: Any) -> None:
    parser = verbs.add_parser("run", help="train a preset, or all presets of a benchmark")
    parser.add_argument("name", help="a preset or a benchmark")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the preset, as for train")
    parser.add_argument("--seeds", type=int, metavar="N", help="N runs with N seeds, as one sweep")
    parser.add_argument("--frames", type=int, metavar="N", help="emulator frames of each run (default: the preset's)")
    parser.add_argument("--dry-run", action="store_true", help="print what would be run, and stop")
    parser.set_defaults(run=_run)


def _help(parser: argparse.ArgumentParser) -> int:
    parser.print_help()
    return 0


def _list(options: argparse.Namespace) -> int:
    from retrograd.config import ConfigManager

    zoo = ConfigManager().zoo()
    presets = zoo.select(game=options.game, agent=options.agent)
    if options.json:
        benchmarks = [benchmark.to_dict() for benchmark in zoo.benchmarks.values()]
        print(json.dumps({"presets": [preset.to_dict() for preset in presets], "benchmarks": benchmarks}, indent=2))
        return 0
    rows = [("preset", "agent", "protocol", "frames", "measured")]
    for preset in presets:
        facts, measured = preset.to_dict(), preset.measured
        score = "-" if measured is None else f"{measured.get('mean_return', '-')}"
        frames = facts["total_env_frames"]
        rows.append((preset.name, facts["agent"], facts["env_protocol"], f"{frames:,}" if frames else "-", score))
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    for benchmark in zoo.benchmarks.values():
        size = f"{len(benchmark.presets)} presets, {benchmark.seeds} seeds"
        print(f"\nbenchmark {benchmark.name}: {benchmark.title}; {size}")
    return 0


def _show(options: argparse.Namespace) -> int:
    import yaml

    from retrograd.config import ConfigManager

    manager = ConfigManager()
    zoo = manager.zoo()
    if options.name in zoo.benchmarks:
        facts = zoo.benchmarks[options.name].to_dict()
    else:
        preset = zoo.find(options.name)
        config = manager.compose([f"zoo={preset.name}"])
        facts = {**preset.to_dict(), "run_with": f"retrograd zoo run {preset.name}", "config": config.to_dict()}
    text = json.dumps(facts, indent=2) if options.json else yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)
    print(text.rstrip())
    return 0


def _run(options: argparse.Namespace) -> int:
    from retrograd import cli
    from retrograd.config import ConfigManager

    zoo = ConfigManager().zoo()
    benchmark = zoo.benchmarks.get(options.name)
    words = list(options.overrides)
    if options.frames is not None:
        words.append(f"training.total_env_frames={options.frames}")
    if options.seeds is not None and options.seeds < 1:
        raise UsageError(f"--seeds {options.seeds} must be at least 1")
    names = benchmark.presets if benchmark else (zoo.find(options.name).name,)
    seeds = options.seeds or (benchmark.seeds if benchmark else None)
    if seeds is None and not benchmark and zoo.presets[names[0]].race is not None:
        return cli.main(["sweep", *_race(zoo.presets[names[0]], words), *(["--dry-run"] if options.dry_run else [])])
    if seeds is None:
        extra = ["--show-config"] if options.dry_run else []
        return cli.main(["train", f"zoo={names[0]}", *words, *extra])
    extra = ["--dry-run"] if options.dry_run else []
    return cli.main(["sweep", f"zoo={','.join(names)}", *_seeded(words, seeds), *extra])


def _race(preset: Preset, words: Sequence[str]) -> list[str]:
    """The preset's race as words of a sweep; its share is one of the budget that was asked for."""
    assert preset.race is not None
    key = "training.total_env_frames"
    frames = [word.partition("=")[2] for word in (*preset.overrides, *words) if word.partition("=")[0] == key]
    if not frames or not frames[-1].isdecimal():
        raise UsageError(f"{key}={frames[-1] if frames else None} must be a whole number: {preset.name} is a race")
    pause = round(preset.race.share * int(frames[-1]))
    return [f"zoo={preset.name}", *_seeded(words, preset.race.runs), "--race", str(pause)]


def _seeded(words: Sequence[str], seeds: int) -> list[str]:
    """``seed=3`` says where the seeds begin; without it they begin at 0."""
    given = [word.partition("=")[2] for word in words if word.partition("=")[0] == "seed"]
    if given and not given[-1].isdecimal():
        raise UsageError(f"seed={given[-1]} must be one whole number, the first of the {seeds} seeds")
    first = int(given[-1]) if given else 0
    rest = [word for word in words if word.partition("=")[0] != "seed"]
    return [f"seed={','.join(str(seed) for seed in range(first, first + seeds))}", *rest]
