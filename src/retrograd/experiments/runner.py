"""The runner of experiments: one run, several seeds, or a whole sweep, as processes within a budget.

Every run is a normal run folder under ``runs/``. What became of each is written down before anything else happens, so
a sweep that was killed goes on where it was: finished runs are left alone, the others gone on with.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from retrograd.core.errors import InUseError, UsageError
from retrograd.experiments.budget import Inspection, Inspector, Need, make_budget
from retrograd.experiments.definition import FILE, Definition, RunSpec
from retrograd.experiments.inspection import show_config
from retrograd.experiments.ledger import Ledger, State
from retrograd.experiments.processes import Child, end_leftover, folder_lock, start_child, stop_requests
from retrograd.experiments.progress import NullProgress, RunProgress, SweepConsole, SweepProgress
from retrograd.experiments.race import Race, check_race
from retrograd.experiments.results import make_row, read_curve, read_progress, read_scores, save_table
from retrograd.experiments.search import Grid, Source, Study, default_setting
from retrograd.training.lock import RunLock
from retrograd.training.manifest import has_checkpoint

RETROGRAD = (sys.executable, "-m", "retrograd")
POLL_SECONDS = 0.5
PRUNE_SECONDS = 5.0


@dataclass(frozen=True)
class Outcome:
    """What a sweep left behind: a row a run, in the order of the runs."""

    folder: Path
    rows: list[dict[str, Any]]
    metric: str
    stopped: int | None = None  # the signal that ended it early
    winner: Path | None = None  # of a race: the run that went on to its end

    @property
    def counts(self) -> dict[str, int]:
        return dict(Counter(row["state"] for row in self.rows))

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if row["state"] == State.FAILED]


@dataclass
class _Job:
    spec: RunSpec
    child: Child
    need: Need
    inspection: Inspection
    pause: int | None = None
    pruned: bool = False


class ExperimentRunner:
    """Runs experiments into one folder; a folder belongs to one definition.

    ``command`` is what starts a run (``train key=value …`` is put behind it), ``inspect`` tells a run's config and
    memory before it starts. Cores, memory and jobs default to what the machine has.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        command: Sequence[str] = RETROGRAD,
        inspect: Inspector | None = None,
        cores: int | None = None,
        memory_bytes: int | None = None,
        jobs: int | None = None,
        progress: SweepProgress | None = None,
        quiet: bool = False,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self.folder = Path(folder)
        self.budget = make_budget(cores, memory_bytes, jobs)
        self._command = tuple(command)
        self._inspect = inspect or show_config(self._command)
        self._progress = progress or (NullProgress() if quiet else SweepConsole())
        self._poll_seconds = poll_seconds
        self._definition: Definition | None = None
        self._specs: list[RunSpec] = []

    def run_single_experiment(self, overrides: Iterable[str] = ()) -> dict[str, Any]:
        """One run; returns its row."""
        return self.run_hyperparameter_sweep(overrides).rows[0]

    def run_multiple_runs(self, overrides: Iterable[str] = (), seeds: Iterable[int] = range(5)) -> list[dict[str, Any]]:
        """The same run with several seeds; returns a row each."""
        words = [*overrides, f"seed={','.join(map(str, seeds))}"]
        return self.run_hyperparameter_sweep(words).rows

    def run_hyperparameter_sweep(self, words: Iterable[str] | Definition, **options: Any) -> Outcome:
        """Every combination of a grid, or the trials of a search; goes on with what the folder holds of it.

        ``options`` are those of a definition: search, trials, metric, prune, search_seed, ablation.
        """
        definition = words if isinstance(words, Definition) else Definition(tuple(words), **options)
        self.check(definition)
        self.folder.mkdir(parents=True, exist_ok=True)
        with folder_lock(self.folder):
            self._adopt(definition)
            ledger = Ledger(self.folder)
            for process in [entry.process for name in ledger if (entry := ledger[name]).state is State.RUNNING]:
                if process is not None:
                    end_leftover(process)
            source = self._source(definition, ledger)
            started = time.monotonic()
            with stop_requests() as received:
                try:
                    _Schedule(self, source, ledger, received).drive()
                finally:
                    self._specs = source.known()
                    self._progress.close(time.monotonic() - started)
            self._save_table(ledger)
        winner = source.winner() if isinstance(source, Race) else None
        return Outcome(
            self.folder,
            self.rows(ledger),
            definition.metric,
            received[0] if received else None,
            None if winner is None else self.run_folder(winner),
        )

    def check(self, definition: Definition) -> list[tuple[RunSpec, Inspection]]:
        """Look at every run, or at a search's corners, before anything starts; the first mistake is raised."""
        if definition.search == "grid":
            specs = definition.grid_runs()
        else:
            specs = [spec for corner in definition.space.corners() for spec in definition.trial_runs(0, corner)]
        looked_at = [(spec, self.inspect(spec)) for spec in specs]
        for spec, inspection in looked_at:
            self.budget.check(spec.name, inspection)
        if definition.race_frames is not None:
            check_race(specs, definition.race_frames, min(inspection.total_frames for _, inspection in looked_at))
        return looked_at

    def inspect(self, spec: RunSpec) -> Inspection:
        try:
            return self._inspect(spec.overrides)
        except UsageError as error:
            raise UsageError(f"run {spec.name}: {error}") from error

    def rows(self, ledger: Ledger | None = None) -> list[dict[str, Any]]:
        """The table so far."""
        ledger = ledger or Ledger(self.folder)
        return [make_row(spec, ledger[spec.name], self.run_folder(spec)) for spec in self._specs]

    def save_results(self) -> list[Path]:
        """Write ``results.csv``, ``results.parquet``, the plots and ``report.html``; returns their paths."""
        from retrograd.experiments.report import write_report

        definition = self._definition or Definition.load(self.folder)
        if not self._specs:
            self._specs = self._source(definition, Ledger(self.folder)).known()
        return [*self._save_table(Ledger(self.folder)), *write_report(self.folder, definition, self.rows())]

    def run_folder(self, spec: RunSpec) -> Path:
        return self.folder / "runs" / spec.name

    def _adopt(self, definition: Definition) -> None:
        """Make the folder this definition's, or find that it is another's."""
        if (self.folder / FILE).exists():
            before = Definition.load(self.folder)
            more_trials = definition.trials is not None and definition.trials >= (before.trials or 0)
            comparable = before.with_trials(definition.trials) if definition.trials and more_trials else before
            differences = definition.differences(comparable)
            if differences:
                raise UsageError(
                    f"{self.folder} holds another sweep ({'; '.join(differences)}); choose another name or remove it"
                )
        definition.save(self.folder)
        self._definition = definition

    def _source(self, definition: Definition, ledger: Ledger) -> Source:
        if definition.race_frames is not None:
            return Race(definition.grid_runs(), ledger, definition.race_frames, self.run_folder, self._progress.say)
        if definition.search == "grid":
            return Grid(definition.grid_runs(), ledger)
        plain = tuple(f"{key}={value}" for key, value in definition.space.fixed.items())
        try:
            config = self._inspect(plain).config
            first = default_setting(definition, lambda key: _look_up(config, key))
        except UsageError:  # the fixed keys alone make no run
            first = None
        return Study(definition, self.folder, ledger, first)

    def _save_table(self, ledger: Ledger) -> list[Path]:
        return save_table(self.rows(ledger), self.folder)

    def resumable(self, spec: RunSpec) -> bool:
        """Whether a run left a checkpoint. A damaged one counts: what was saved is not removed to begin anew."""
        return has_checkpoint(self.run_folder(spec))

    def start(
        self, spec: RunSpec, inspection: Inspection, *, resume: bool, pause: int | None = None, alone: bool = False
    ) -> Child:
        """Go on with a run from its checkpoint, or start it from nothing; up to ``pause`` frames, if there is one."""
        folder = self.run_folder(spec)
        hardware = inspection.config["hardware"]
        threads = inspection.threads or (self.budget.cores if alone else self.budget.threads)
        shares = [f"hardware.{key}={threads}" for key in ("torch_threads", "env_threads") if hardware.get(key) is None]
        if pause is not None:
            shares.append(f"training.pause_at_frames={pause}")
        if resume:
            words = ["resume", str(folder), *shares]
        else:
            if folder.exists():
                _clear(folder)
            words = ["train", *spec.overrides, *shares, f"output_dir={quote(str(folder.parent))}"]
            words.append(f"run_name={folder.name}")
        log = self.folder / "logs" / f"{spec.name}.log"
        return start_child([*self._command, *words], threads=threads, log=log)

    @property
    def progress(self) -> SweepProgress:
        return self._progress

    @property
    def poll_seconds(self) -> float:
        return self._poll_seconds

    @property
    def metric(self) -> str:
        return self._definition.metric if self._definition else "final"


class _Schedule:
    """The loop: start what fits, look after what runs, note what ended."""

    def __init__(self, runner: ExperimentRunner, source: Source, ledger: Ledger, received: list[Any]) -> None:
        self._runner, self._source, self._ledger, self._received = runner, source, ledger, received
        self._jobs: list[_Job] = []
        self._next: tuple[RunSpec, Inspection] | None = None
        self._prune_at = time.monotonic() + PRUNE_SECONDS

    def drive(self) -> None:
        try:
            while True:
                if not self._received:
                    self._start_what_fits()
                self._look_after()
                if not self._jobs and (self._received or not self._peek()):
                    return
                time.sleep(self._runner.poll_seconds)
        except BaseException:
            for job in self._jobs:
                job.child.kill()
            raise

    def _start_what_fits(self) -> None:
        runner = self._runner
        while len(self._jobs) < runner.budget.jobs and self._peek():
            assert self._next is not None
            spec, inspection = self._next
            if not runner.budget.fits(runner.budget.need(inspection), [job.need for job in self._jobs]):
                return
            self._next = None
            self._start(spec, inspection, resume=runner.resumable(spec))

    def _start(self, spec: RunSpec, inspection: Inspection, *, resume: bool) -> None:
        runner = self._runner
        before, pause = self._ledger[spec.name].starts, self._source.pause(spec)
        self._ledger.change(spec.name, State.RUNNING)
        try:
            child = runner.start(spec, inspection, resume=resume, pause=pause, alone=self._source.alone(spec))
        except InUseError as error:
            self._note(spec, State.FAILED, error.exit_code, str(error))
            return
        self._ledger.note_process(spec.name, child.identity)
        self._jobs.append(_Job(spec, child, runner.budget.need(inspection), inspection, pause))
        word = "goes on" if resume else "starts again" if before else "starts"
        runner.progress.say(f"{spec.name} {word}")

    def _peek(self) -> bool:
        """Find the next run that has something left to do."""
        while self._next is None:
            spec = self._source.next()
            if spec is None:
                return False
            state = self._ledger[spec.name].state
            if not state.settled and (self._runner.run_folder(spec) / "summary.json").exists():
                state = self._ledger.change(spec.name, State.FINISHED).state  # it ended as the sweep was killed
            if state.settled:
                self._source.settle(spec, state, self._score(spec))
                continue
            try:
                self._next = spec, self._runner.inspect(spec)
            except UsageError as error:  # a search may draw what does not go together
                self._ledger.change(spec.name, State.FAILED, exit_code=2, reason=str(error))
                self._source.settle(spec, State.FAILED, None)
        return True

    def _look_after(self) -> None:
        prune = time.monotonic() >= self._prune_at
        if prune:
            self._prune_at = time.monotonic() + PRUNE_SECONDS
        for job in list(self._jobs):
            code = job.child.poll()
            if code is not None:
                self._jobs.remove(job)
                self._settle(job, code)
            elif self._received:
                job.child.ask_to_stop()
            elif prune and not job.pruned:
                curve = read_curve(self._runner.run_folder(job.spec))
                if self._source.hopeless(job.spec, curve, job.inspection.total_frames):
                    job.pruned = True
                    job.child.ask_to_stop()
        self._show()

    def _settle(self, job: _Job, code: int) -> None:
        spec = job.spec
        finished = (self._runner.run_folder(spec) / "summary.json").exists()
        if code == 0 and finished:
            state, reason = State.FINISHED, None
        elif job.pruned:
            state, reason = State.PRUNED, "no better than the median of the trials before it"
        elif code == 0 and job.pause is not None and job.child.asked_to_stop_at is None:
            state, reason = State.PAUSED, None
        elif job.child.asked_to_stop_at is not None:
            state, reason = State.STOPPED, None
        else:
            state, reason = State.FAILED, last_words(job.child.log) or "it ended without a result"
        self._note(spec, state, code, reason)

    def _note(self, spec: RunSpec, state: State, code: int, reason: str | None) -> None:
        self._ledger.change(spec.name, state, exit_code=code, reason=reason)
        score = self._score(spec)
        self._source.settle(spec, state, score)
        shown = "" if score is None else f", {self._runner.metric} score {score:.6g}"
        self._runner.progress.say(f"{spec.name} {state}{shown}{f': {reason}' if reason else ''}")

    def _score(self, spec: RunSpec) -> float | None:
        folder = self._runner.run_folder(spec)
        return read_scores(folder).value(self._runner.metric) if folder.is_dir() else None

    def _show(self) -> None:
        states = Counter(self._ledger[name].state for name in self._ledger)
        running = [
            RunProgress(job.spec.name, read_progress(self._runner.run_folder(job.spec)), job.inspection.total_frames)
            for job in self._jobs
        ]
        self._runner.progress.show(states, self._source.total, running)


def _clear(folder: Path) -> None:
    """Remove what is left of a run killed before its first checkpoint, unless another process is at work in it."""
    lock = RunLock(folder)
    try:
        shutil.rmtree(folder)
    finally:
        lock.release()


def last_words(log: Path) -> str | None:
    """Why a run ended, as its log tells: our own last message, or else its last line."""
    lines: list[str] = []
    with suppress(OSError):
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    ours = [line.removeprefix("retrograd: ") for line in lines if line.startswith("retrograd: ")]
    return (ours or lines)[-1].strip() if lines else None


def quote(text: str) -> str:
    """Text as one value of an override, whatever it holds."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _look_up(config: Mapping[str, Any], key: str) -> Any:
    place: Any = config
    for word in key.split("."):
        place = place.get(word) if isinstance(place, Mapping) else None
    return place
