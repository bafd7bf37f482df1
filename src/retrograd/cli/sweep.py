"""``retrograd sweep``: several seeds, grids, searches and ablations in one command."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from retrograd.cli.targets import check_target
from retrograd.cli.words import add_command, show_preset
from retrograd.core.errors import UsageError, suggest

if TYPE_CHECKING:
    from retrograd.experiments.budget import Inspection
    from retrograd.experiments.definition import Definition
    from retrograd.experiments.runner import ExperimentRunner, Outcome

DEFAULT_TRIALS = 30
OUTPUT_DIR = "outputs"


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "sweep",
        "run several seeds, a grid, a search or an ablation, with one table and one report",
        "retrograd sweep agent=ppo env=cartpole agent.network=separate preset.lr=0.001,0.003 seed=0,1,2,3,4",
        "retrograd sweep agent=ppo env=cartpole 'preset.lr=log(1e-5,1e-2)' 'agent.epochs=int(1,10)' \\",
        "    --search bayes --trials 30 --prune",
        "retrograd sweep ablation=rainbow env=pong seed=0,1,2 training.total_env_frames=2000000",
        "retrograd sweep agent=dqn env=pong,breakout seed=0,1 --dry-run",
        "retrograd sweep agent=ppo env=pong seed=0,1,2,3 --race 2000000",
        "retrograd sweep --resume outputs/sweeps/ppo_cartpole_1a2b3c4d",
    )
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="key=value",
        help="as for train; a,b,c makes a list, log(low,high), uniform(low,high), int(low,high), choice(a,b) a range",
    )
    add = parser.add_argument
    add("--search", choices=("grid", "random", "bayes"), help="default: bayes where there is a range, else grid")
    add("--trials", type=int, metavar="N", help=f"settings a search tries (default {DEFAULT_TRIALS})")
    add(
        "--metric",
        choices=("final", "best", "auc"),
        help="what is best: final or best evaluation, area under the curve",
    )
    add("--prune", action="store_true", default=None, help="end trials that fall behind the median of the others")
    add("--race", type=int, metavar="FRAMES", help="all runs up to so many frames, then only the best to its end")
    add("--search-seed", type=int, metavar="N", help="of the search itself (default 0)")
    add("--name", help="folder under outputs/sweeps (default: made from the words; the same command finds it again)")
    add("--resume", metavar="FOLDER", help="go on with a sweep; finished runs are left alone")
    add("--jobs", type=int, metavar="N", help="runs at the same time at most (default: one a core)")
    add("--cores", type=int, metavar="N", help="cores to use in all (default: all)")
    add("--memory", metavar="SIZE", help="memory to use in all, e.g. 8GB (default: most of what is free)")
    add("--dry-run", action="store_true", help="print the runs and stop")
    parser.set_defaults(run=_sweep)


def _sweep(options: argparse.Namespace) -> int:
    from retrograd.experiments.budget import parse_memory
    from retrograd.experiments.runner import ExperimentRunner

    words = _take_extras(options)
    folder, definition = _resumed(options, words) if options.resume else _defined(options, words)
    runner = ExperimentRunner(
        folder,
        inspect=_inspect,
        cores=options.cores,
        jobs=options.jobs,
        memory_bytes=None if options.memory is None else parse_memory(options.memory),
    )
    if options.dry_run:
        print(json.dumps(_plan(runner, definition), indent=2))
        return 0
    check_target(folder, "folder")
    budget = runner.budget
    print(
        f"sweep folder: {folder}\nup to {budget.jobs} runs at once on {budget.cores} cores "
        f"and {budget.memory_bytes / 1e9:.1f} GB",
        file=sys.stderr,
    )
    outcome = runner.run_hyperparameter_sweep(definition)
    paths = runner.save_results()
    print(json.dumps(_summary(outcome, paths), indent=2))
    if outcome.winner is not None:
        show_preset(outcome.winner)
    if outcome.stopped:
        print(f"retrograd: stopped; go on with: retrograd sweep --resume {folder}", file=sys.stderr)
        return 128 + outcome.stopped
    for row in outcome.failed:
        print(f"retrograd: run {row['run']} failed: {row['reason']}", file=sys.stderr)
    return 1 if outcome.failed else 0


def _take_extras(options: argparse.Namespace) -> list[str]:
    """``+name=x`` is ``--name x``: ``make sweep`` can pass no options."""
    words = []
    names = (
        "search",
        "trials",
        "metric",
        "prune",
        "search_seed",
        "race",
        "name",
        "resume",
        "jobs",
        "cores",
        "memory",
        "dry_run",
    )
    for word in options.overrides:
        if not word.startswith("+"):
            words.append(word)
            continue
        name, _, text = word[1:].partition("=")
        if name not in names:
            raise UsageError(
                f"unknown +{name}; known here are {', '.join(f'+{each}' for each in names)}.{suggest(name, names)}"
            )
        value: Any = text
        if name in ("prune", "dry_run"):
            value = _flag(word, text)
        elif name in ("trials", "jobs", "cores", "search_seed", "race"):
            try:
                value = int(text)
            except ValueError:
                raise UsageError(f"{word}: {name} must be a whole number") from None
        setattr(options, name, value)
    return words


def _flag(word: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise UsageError(f"{word} must be true or false")
    return text == "true"


def _defined(options: argparse.Namespace, words: Sequence[str]) -> tuple[Path, Definition]:
    from retrograd.experiments.definition import Definition, check_name
    from retrograd.experiments.space import parse_space

    if not words:
        raise UsageError("say what to run, e.g. retrograd sweep agent=dqn env=pong,breakout seed=0,1")
    given = dict(word.partition("=")[::2] for word in words)
    rest = tuple(word for word in words if word.partition("=")[0] not in ("output_dir", "ablation"))
    ablation = _find_ablation(given["ablation"]) if "ablation" in given else None
    search = options.search or ("bayes" if parse_space(rest).ranges else "grid")
    definition = Definition(
        rest,
        search=search,
        trials=options.trials if options.trials is not None or search == "grid" else DEFAULT_TRIALS,
        metric=options.metric or "final",
        prune=bool(options.prune),
        search_seed=options.search_seed or 0,
        ablation=ablation,
        race_frames=options.race,
    )
    label = f"{given['ablation']}_" if ablation and "/" not in given["ablation"] else ""
    name = check_name(options.name) if options.name else label + definition.default_name
    return Path(given.get("output_dir", OUTPUT_DIR)) / "sweeps" / name, definition


def _resumed(options: argparse.Namespace, words: Sequence[str]) -> tuple[Path, Definition]:
    from retrograd.experiments.definition import Definition

    known = ("search", "metric", "prune", "search_seed", "race", "name")
    fixed = [name for name in known if getattr(options, name) is not None]
    if words or fixed:
        what = words[0] if words else f"--{fixed[0].replace('_', '-')}"
        raise UsageError(f"{what} cannot be given with --resume: the sweep knows what it runs; --trials may be raised")
    folder = Path(options.resume)
    definition = Definition.load(folder)
    if options.trials is None:
        return folder, definition
    if definition.trials is None or options.trials < definition.trials:
        raise UsageError(
            f"--trials {options.trials}: the sweep has {definition.trials or 'no'} trials; they may be raised"
        )
    return folder, definition.with_trials(options.trials)


def _find_ablation(name: str) -> dict[str, Any]:
    from retrograd.config import ConfigManager
    from retrograd.experiments.ablation import find_ablation

    return find_ablation(name, ConfigManager().folders("ablation")).to_dict()


def _inspect(overrides: Sequence[str]) -> Inspection:
    """The config and the memory of a run, composed here: quicker than asking a process for it."""
    from retrograd.build import memory_needed
    from retrograd.config import ConfigManager
    from retrograd.experiments.budget import Inspection

    config = ConfigManager().compose(overrides)
    return Inspection(config.values, memory_needed(config))


def _plan(runner: ExperimentRunner, definition: Definition) -> dict[str, Any]:
    looked_at = runner.check(definition)
    runs = [
        {
            "run": spec.name,
            "overrides": list(spec.overrides),
            "frames": inspection.total_frames,
            "cores": runner.budget.need(inspection).cores,
            "memory_gb": round(inspection.memory_bytes / 1e9, 2),
        }
        for spec, inspection in looked_at
    ]
    race = {} if definition.race_frames is None else {"race_frames": definition.race_frames}
    budget = {"cores": runner.budget.cores, "jobs": runner.budget.jobs, "memory_gb": runner.budget.memory_bytes / 1e9}
    if definition.search == "grid":
        return {"sweep": str(runner.folder), "budget": budget, **race, "runs": runs}
    searched = [word for word in definition.words if word.partition("=")[0] not in (*definition.space.fixed, "seed")]
    return {
        "sweep": str(runner.folder),
        "budget": budget,
        "search": definition.search,
        "trials": definition.trials,
        "seeds": list(definition.seeds),
        "searched": searched,
        "corners": runs,
    }


def _summary(outcome: Outcome, paths: Sequence[Path]) -> dict[str, Any]:
    from retrograd.experiments.groups import by_task, group_rows

    tasks = by_task(group_rows(outcome.rows, outcome.metric))
    best = [(task, members[0]) for task, members in tasks.items() if members[0].scores]
    return {
        "sweep": str(outcome.folder),
        "runs": len(outcome.rows),
        **outcome.counts,
        "metric": outcome.metric,
        **({} if outcome.winner is None else {"winner": str(outcome.winner)}),
        "best": [
            {"on": task or None, "settings": group.label_in_task, "score": group.mean, "seeds": len(group.scores)}
            for task, group in best
        ],
        "files": [str(path) for path in paths if path.parent == outcome.folder],
    }
