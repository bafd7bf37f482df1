"""Weights & Biases, online or offline: one history line for each row of the logs."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from retrograd.core.errors import UsageError, missing_extra
from retrograd.tracking.identity import recall, remember
from retrograd.tracking.series import named_numbers


class WandbSink:
    """Every line carries the run's own ``step``, which is the axis of all charts.

    W&B numbers the lines. The number is ours and goes through checkpoints: a resumed run writes the same lines
    under the same numbers, and those that W&B already has are not sent again. A checkpoint of a time without W&B has
    no number: the next line follows those that W&B has.
    """

    def __init__(
        self,
        folder: Path,
        *,
        project: str,
        mode: str = "online",
        entity: str | None = None,
        run_name: str | None = None,
        tags: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        check_ready(mode)
        import wandb

        known = recall(folder, "wandb")
        run_id = known or uuid.uuid4().hex[:12]
        try:
            self._run: Any = wandb.init(
                project=project,
                entity=entity,
                name=run_name or folder.name,
                id=run_id,
                resume="allow" if known else None,
                tags=list(tags),
                config=dict(config or {}),
                dir=str(folder),
                mode=mode,  # type: ignore[arg-type]
                reinit="create_new",
                save_code=False,
                settings=wandb.Settings(console="off"),
            )
        except Exception as error:  # its own errors, and whatever the network may raise
            raise UsageError(
                f"wandb.enabled=true: no run could be started ({error}); try wandb.mode=offline"
            ) from error
        if not known:
            remember(folder, "wandb", run_id)
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self._lines: int = self._run.step

    def write(self, table: str, row: Mapping[str, Any]) -> None:
        line: dict[str, Any] = {"step": int(row["step"]), **named_numbers(table, row)}
        if table == "eval":
            line["eval/eval_type"] = row["eval_type"]
        self._log(line)

    def write_video(self, path: Path, *, step: int) -> None:
        import wandb

        self._log({"step": step, "video": wandb.Video(str(path), format="mp4")})

    def close(self) -> None:
        self._run.finish()

    def state_dict(self) -> dict[str, Any]:
        return {"lines": self._lines}

    def load_state_dict(self, state: Mapping[str, Any], /) -> None:
        self._lines = state["lines"]

    def begin_again(self) -> None:
        self._lines = 0

    def _log(self, line: dict[str, Any]) -> None:
        if self._lines >= self._run.step:  # below it: sent before the run was killed, and equal to this one
            self._run.log(line, step=self._lines, commit=True)
        self._lines += 1


def check_ready(mode: str) -> None:
    """The package, and for online runs a key: asking for one in the middle of a start would wait for ever."""
    try:
        import wandb
    except ImportError:
        raise missing_extra("wandb.enabled=true", "wandb") from None
    if mode == "online" and not wandb.login(prompt=False, verify=False):
        raise UsageError("wandb.enabled=true: nobody is logged in; run `wandb login`, or use wandb.mode=offline")
