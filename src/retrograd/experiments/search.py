"""Where the runs of a sweep come from: a grid that is known from the start, or a study that chooses as it learns."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from retrograd.core.errors import missing_extra
from retrograd.experiments.definition import Definition, RunSpec
from retrograd.experiments.ledger import Ledger, State
from retrograd.experiments.results import Curve

STUDY_FILE = "study.db"
STUDY_NAME = "sweep"  # not the folder's, which may be renamed
SLICES = 10  # how often a running trial is compared with the others
PRUNE_AFTER_TRIALS = 5
PRUNE_AFTER_SLICES = 2

log = logging.getLogger(__name__)


class Source(Protocol):
    """Gives runs until there are no more, and is told what became of each."""

    total: int

    def next(self) -> RunSpec | None: ...
    def settle(self, spec: RunSpec, state: State, score: float | None) -> None: ...
    def hopeless(self, spec: RunSpec, curve: Curve, total_frames: int) -> bool: ...
    def known(self) -> list[RunSpec]: ...
    def pause(self, spec: RunSpec) -> int | None: ...  # the frames at which a run that starts now is to wait
    def alone(self, spec: RunSpec) -> bool: ...  # whether it may have all cores: no other will start beside it


class Grid:
    """Every run once; one that is settled already is not given again."""

    def __init__(self, specs: Sequence[RunSpec], ledger: Ledger) -> None:
        self._specs, self._ledger = list(specs), ledger
        self._waiting = iter([spec for spec in self._specs if not ledger[spec.name].state.settled])
        self.total = len(self._specs)

    def next(self) -> RunSpec | None:
        return next(self._waiting, None)

    def settle(self, spec: RunSpec, state: State, score: float | None) -> None:
        pass

    def hopeless(self, spec: RunSpec, curve: Curve, total_frames: int) -> bool:
        return False

    def known(self) -> list[RunSpec]:
        return self._specs

    def pause(self, spec: RunSpec) -> int | None:
        return None

    def alone(self, spec: RunSpec) -> bool:
        return False


class Study:
    """An Optuna study in ``study.db``; trials that were under way when it was left are gone on with.

    A trial is one setting, run with every seed of the sweep; its value is their mean. The sampler is made anew with
    the trial's number in its seed, so that a study gone on with does not draw the same settings again.
    """

    def __init__(
        self, definition: Definition, folder: Path, ledger: Ledger, first: Mapping[str, Any] | None = None
    ) -> None:
        self._optuna = load_optuna()
        self._definition, self._ledger = definition, ledger
        self._folder = folder
        self._study = self._open()
        if first is not None and not self._study.trials:
            self._study.enqueue_trial(dict(first))
        assert definition.trials is not None
        self._trials = definition.trials
        self.total = self._trials * max(1, len(definition.seeds))
        self._waiting: list[RunSpec] = []
        self._open_runs: dict[int, dict[str, RunSpec]] = {}
        self._scores: dict[int, dict[str, float | None]] = {}
        self._given_up: set[int] = set()
        for trial in self._study.get_trials(states=(self._optuna.trial.TrialState.RUNNING,)):
            self._begin(trial.number, self._complete(trial))

    def next(self) -> RunSpec | None:
        if not self._waiting and self._asked() < self._trials:
            self._study.sampler = self._sampler(self._asked())
            trial = self._study.ask(self._distributions())
            self._begin(trial.number, trial.params)
        return self._waiting.pop(0) if self._waiting else None

    def settle(self, spec: RunSpec, state: State, score: float | None) -> None:
        """A trial is told when the last of its runs is in; one failed or pruned run decides it."""
        assert spec.trial is not None
        runs, states = self._open_runs[spec.trial], self._optuna.trial.TrialState
        if state in (State.RUNNING, State.STOPPED):
            return
        del runs[spec.name]
        self._scores[spec.trial][spec.name] = score
        if state is not State.FINISHED or score is None or not math.isfinite(score):
            self._tell(spec.trial, state=states.PRUNED if state is State.PRUNED else states.FAIL)
            self._give_up(spec.trial, f"the trial's run {spec.name} was {state}")
            return
        if not runs:
            values = [value for value in self._scores[spec.trial].values() if value is not None]
            self._tell(spec.trial, value=sum(values) / len(values))

    def hopeless(self, spec: RunSpec, curve: Curve, total_frames: int) -> bool:
        """Report how far the run's curve has come; true when Optuna's median pruner gives the trial up."""
        if spec.trial in self._given_up:
            return True
        if not self._definition.prune or spec.trial is None:
            return False
        trial = self._optuna.trial.Trial(self._study, self._trial_id(spec.trial))
        seeds = self._definition.seeds
        place = seeds.index(spec.seed) if spec.seed in seeds else 0
        reported = self._study.trials[spec.trial].intermediate_values
        reached = curve.frames[-1] if len(curve.frames) else 0.0
        width = total_frames / SLICES
        for part in range(1, SLICES):
            step = place * SLICES + part
            value = curve.at(part * width, width)
            if part * width > reached or value is None or step in reported:
                continue
            trial.report(value, step)
            if trial.should_prune():
                return True
        return False

    def known(self) -> list[RunSpec]:
        return [
            spec
            for trial in self._study.trials
            if trial.params
            for spec in self._definition.trial_runs(trial.number, self._texts(trial.params))
        ]

    def pause(self, spec: RunSpec) -> int | None:
        return None

    def alone(self, spec: RunSpec) -> bool:
        return False

    def _open(self) -> Any:
        optuna = self._optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        return optuna.create_study(
            study_name=STUDY_NAME,
            storage=f"sqlite:///{self._folder.resolve() / STUDY_FILE}",
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(PRUNE_AFTER_TRIALS, PRUNE_AFTER_SLICES)
            if self._definition.prune
            else optuna.pruners.NopPruner(),
        )

    def _asked(self) -> int:
        waiting = self._optuna.trial.TrialState.WAITING
        return sum(trial.state != waiting for trial in self._study.get_trials(deepcopy=False))

    def _complete(self, trial: Any) -> Mapping[str, Any]:
        """The values of a trial; those that a kill in the middle of asking has left open are drawn now."""
        distributions = self._distributions()
        if trial.params.keys() >= distributions.keys():
            values: Mapping[str, Any] = trial.params
            return values
        self._study.sampler = self._sampler(trial.number)
        asked = self._optuna.trial.Trial(self._study, trial._trial_id)
        return {key: asked._suggest(key, kind) for key, kind in distributions.items()}

    def _begin(self, number: int, params: Mapping[str, Any]) -> None:
        specs = self._definition.trial_runs(number, self._texts(params))
        self._open_runs[number] = {spec.name: spec for spec in specs}
        self._scores[number] = {}
        self._waiting += specs

    def _give_up(self, number: int, reason: str) -> None:
        """Its runs that were not started never will be; those under way are hopeless from now on."""
        self._given_up.add(number)
        for each in [each for each in self._waiting if each.trial == number]:
            self._waiting.remove(each)
            self._ledger.change(each.name, State.PRUNED, reason=reason)

    def _tell(self, number: int, *, value: float | None = None, state: Any = None) -> None:
        self._study.tell(number, value, state=state, skip_if_finished=True)

    def _trial_id(self, number: int) -> int:
        identity: int = self._study.trials[number]._trial_id
        return identity

    def _sampler(self, number: int) -> Any:
        seed = self._definition.search_seed * 100_003 + number
        samplers = self._optuna.samplers
        if self._definition.search == "random":
            return samplers.RandomSampler(seed=seed)
        return samplers.TPESampler(seed=seed, constant_liar=True)  # running trials count: several are asked at once

    def _distributions(self) -> dict[str, Any]:
        kinds, space = self._optuna.distributions, self._definition.space
        lists = {key: values for key, values in space.lists.items() if key != "seed"}
        return {
            **{key: kinds.CategoricalDistribution(values) for key, values in lists.items()},
            **{
                key: kinds.IntDistribution(round(each.low), round(each.high), log=each.log)
                if each.whole
                else kinds.FloatDistribution(each.low, each.high, log=each.log)
                for key, each in space.ranges.items()
            },
        }

    def _texts(self, params: Mapping[str, Any]) -> dict[str, str]:
        ranges = self._definition.space.ranges
        return {key: ranges[key].text(value) if key in ranges else str(value) for key, value in params.items()}


def load_optuna() -> Any:
    """Optuna, or the error that says how to get it."""
    try:
        import optuna
    except ImportError as error:
        raise missing_extra("Random and Bayesian search", "sweep") from error
    return optuna


def default_setting(definition: Definition, config: Callable[[str], Any]) -> dict[str, Any] | None:
    """The config's own values of what is searched, if all lie inside: the setting to beat is tried first."""
    space, first = definition.space, {}
    for key, each in space.ranges.items():
        value = config(key)
        if not each.holds(value):
            return None
        first[key] = round(value) if each.whole else float(value)
    for key, values in space.lists.items():
        if key == "seed":
            continue
        value = config(key)
        if isinstance(value, Mapping):  # a whole group, known by the name its file has
            value = value.get("name")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if text not in values:
            return None
        first[key] = text
    return first
