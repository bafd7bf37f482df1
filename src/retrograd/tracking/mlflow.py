"""MLflow: a local SQLite store beside the runs, or a server."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from retrograd.core.errors import RetrogradError, UsageError, missing_extra
from retrograd.tracking.identity import recall, remember
from retrograd.tracking.series import flatten, named_numbers

BATCH_METRICS = 1_000  # what a server takes at once
BATCH_PARAMS = 100
WAITING_ROWS = 100
PARAM_CHARACTERS = 6_000
# MLflow would try seven times with growing pauses, minutes in which nobody learns anything
SERVER_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}


class MlflowSink:
    """Metrics, the config as parameters and as a file, videos as files.

    How many rows each table had goes through checkpoints: after a resume, rows that the store already has are
    counted and not sent again. A checkpoint of a time without MLflow says nothing of that: the next row follows those
    that the store has.
    """

    def __init__(
        self,
        folder: Path,
        *,
        experiment: str,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        tags: Mapping[str, str] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        check_installed()
        self._rows: Counter[str] = Counter()
        self._known_rows: Counter[str] = Counter()
        self._waiting: list[list[Any]] = []  # the metrics of one row each
        self._milliseconds = 0
        self.tracking_uri = tracking_uri or local_store(folder.parent)
        try:
            self._open(folder, run_name or folder.name, dict(tags or {}), config or {}, experiment)
        except RetrogradError:
            raise
        except Exception as error:  # of the database, of the network, of the server
            text = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise UsageError(f"mlflow.enabled=true: {self.tracking_uri} cannot be used ({text})") from error

    def _open(
        self, folder: Path, run_name: str, tags: dict[str, str], config: Mapping[str, Any], experiment: str
    ) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client: Any = MlflowClient(tracking_uri=self.tracking_uri)
        known = recall(folder, "mlflow")
        if known is not None:
            self.run_id = known
            self._client.update_run(known, status="RUNNING")
            for table in ("train", "update", "eval"):
                history = self._client.get_metric_history(known, f"{table}/env_frames")
                self._known_rows[table] = len(history)
                self._milliseconds = max([self._milliseconds, *(entry.timestamp for entry in history)])
            self._rows.update(self._known_rows)
        else:
            place = self._experiment_id(experiment, folder.parent)
            run = self._client.create_run(place, tags=tags, run_name=run_name)
            self.run_id = run.info.run_id
            params = [Param(key, str(value)[:PARAM_CHARACTERS]) for key, value in flatten(config).items()]
            for begin in range(0, len(params), BATCH_PARAMS):
                self._client.log_batch(self.run_id, params=params[begin : begin + BATCH_PARAMS])
            remember(folder, "mlflow", self.run_id)
        self._client.log_dict(self.run_id, dict(config), "config.yaml")

    def _experiment_id(self, name: str, parent: Path) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is not None:
            if found.lifecycle_stage != "active":
                raise UsageError(f"mlflow.experiment={name} was deleted in {self.tracking_uri}; choose another name")
            return str(found.experiment_id)
        # a local store would put files under the folder the command was started in
        local = self.tracking_uri == local_store(parent)
        place = (parent.resolve() / "mlflow_artifacts").as_uri() if local else None
        return str(self._client.create_experiment(name, artifact_location=place))

    def write(self, table: str, row: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric

        self._rows[table] += 1
        if self._rows[table] <= self._known_rows[table]:
            return
        # equal metrics of one moment are one to a store: each row has its own moment, which also keeps the order
        self._milliseconds = max(self._milliseconds + 1, int(time.time() * 1000))
        moment, step = self._milliseconds, int(row["step"])
        numbers = named_numbers(table, row)
        self._waiting.append([Metric(name, number, moment, step) for name, number in numbers.items()])
        if table != "train" or len(self._waiting) >= WAITING_ROWS:
            self.flush()

    def write_video(self, path: Path, *, step: int) -> None:
        with TemporaryDirectory() as folder:  # a file is stored under the name it has
            named = Path(folder) / f"step_{step:09d}{path.suffix}"
            shutil.copyfile(path, named)
            self._client.log_artifact(self.run_id, str(named), "videos")

    def flush(self) -> None:
        """Send what waits, in batches of whole rows; what a server refuses goes on waiting."""
        while self._waiting:
            batch: list[Any] = []
            rows = 0
            for row in self._waiting:
                if rows and len(batch) + len(row) > BATCH_METRICS:
                    break
                batch += row
                rows += 1
            self._client.log_batch(self.run_id, metrics=batch)
            del self._waiting[:rows]

    def close(self) -> None:
        self.flush()
        self._client.set_terminated(self.run_id)

    def state_dict(self) -> dict[str, Any]:
        self.flush()  # a row that a checkpoint counts must be in the store
        return {"rows": dict(self._rows)}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self._rows = Counter(state["rows"])

    def begin_again(self) -> None:
        """The rows come from the first on; those that the store has are not sent again."""
        self._rows.clear()


def local_store(folder: Path) -> str:
    """The address of the store that all runs of an output folder share."""
    return f"sqlite:///{(folder.resolve() / 'mlflow.db').as_posix()}"


def check_installed() -> None:
    for name, value in SERVER_PATIENCE.items():
        os.environ.setdefault(name, value)
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # a training tells nobody that it ran
    try:
        import mlflow  # noqa: F401
    except ImportError:
        raise missing_extra("mlflow.enabled=true", "mlflow") from None
