"""Logs: equal for equal runs, readable after a crash, and never in the way of the training."""

from __future__ import annotations

import errno
import io
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from retrograd.core import disk
from retrograd.core.disk import FileSystem
from retrograd.core.errors import UsageError
from retrograd.core.types import Episode
from retrograd.tracking.console import ConsoleSink, NullConsole, format_duration
from retrograd.tracking.csv import COLUMNS, CsvSink, read_csv
from retrograd.tracking.logger import FAILURES_ALLOWED, Logger
from retrograd.tracking.metrics import JOIN_VALUES, MetricsTracker
from retrograd.tracking.wandb import WandbSink

SUMMARY = {
    "mean_return": 10.0,
    "std_return": 1.5,
    "min_return": 8.0,
    "max_return": 12.0,
    "median_return": 10.0,
    "mean_length": 99.0,
    "human_normalized": None,
}


def play(folder: Path, speed: float = 100.0) -> None:
    logger = Logger([CsvSink(folder)])
    for step in range(4, 40, 4):
        logger.tracker.update({"loss": torch.tensor(1 / step), "mean_q": torch.tensor(0.1), "extra": 1 / 3})
        logger.log_episode(Episode(0, step / 7, step, 4 * step), step=step, env_frames=4 * step)
        logger.log_step(step=step, env_frames=4 * step, extra={"epsilon": 0.05, "steps_per_second": speed})
    logger.log_evaluation(SUMMARY, step=40, env_frames=160, eval_type="full")
    logger.save_logs()
    logger.close()


class TestCsv:
    def test_identical_input_gives_identical_files(self, tmp_path: Path) -> None:
        """REQ RUN-9."""
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            play(tmp_path / name)
        names = sorted(path.name for path in (tmp_path / "a").iterdir())
        assert names == ["eval_log.csv", "train_log.csv", "update_log.csv"]
        for name in names:
            assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()

    def test_columns_are_the_promised_ones_with_times_last(self, tmp_path: Path) -> None:
        """REQ RUN-3."""
        play(tmp_path)
        headers = {table: (tmp_path / f"{table}_log.csv").read_text().splitlines()[0] for table in COLUMNS}
        assert headers["train"] == "step,env_frames,episode_number,episode_return,episode_length"
        assert headers["eval"] == ",".join(COLUMNS["eval"])
        assert headers["update"] == ",".join(COLUMNS["update"]) + ",extra,steps_per_second"

    def test_numbers_read_back_exactly(self, tmp_path: Path) -> None:
        sink = CsvSink(tmp_path)
        values = {
            "step": 1,
            "a": 0.1 + 0.2,
            "b": np.float32(0.1),
            "c": torch.tensor(3),
            "d": None,
            "e": "two\nlines, x",
        }
        sink.write("update", values)
        (row,) = read_csv(tmp_path / "update_log.csv")
        assert (row["a"], row["b"], row["c"], row["d"]) == (0.1 + 0.2, float(np.float32(0.1)), 3, None)
        assert row["e"] == "two lines, x"
        assert isinstance(row["step"], int)

    def test_rows_are_visible_at_once(self, tmp_path: Path) -> None:
        sink = CsvSink(tmp_path)
        sink.write("train", {"step": 1})
        assert len(read_csv(tmp_path / "train_log.csv")) == 1

    def test_torn_last_line_is_ignored_and_replaced(self, tmp_path: Path) -> None:
        play(tmp_path)
        path = tmp_path / "train_log.csv"
        whole = read_csv(path)
        path.write_bytes(path.read_bytes()[:-3])
        assert read_csv(path) == whole[:-1]
        CsvSink(tmp_path).write("train", whole[-1])
        assert read_csv(path) == whole

    def test_torn_header_is_written_again(self, tmp_path: Path) -> None:
        (tmp_path / "train_log.csv").write_text("step,env_fr")
        assert read_csv(tmp_path / "train_log.csv") == []
        CsvSink(tmp_path).write("train", {"step": 1})
        assert read_csv(tmp_path / "train_log.csv")[0]["step"] == 1

    def test_unreadable_line_in_the_middle_is_reported(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        (tmp_path / "x.csv").write_bytes(b"step,a\n1,2\n\0\0\0\n3,4\n")
        with caplog.at_level(logging.WARNING):
            assert [row["step"] for row in read_csv(tmp_path / "x.csv")] == [1, 3]
        assert "1 unreadable" in caplog.text

    def test_new_columns_stand_before_the_times(self, tmp_path: Path) -> None:
        sink = CsvSink(tmp_path, update_columns=("step", "policy_loss"))
        sink.write("update", {"step": 1, "policy_loss": 0.5, "wall_seconds": 9.0})
        sink.write("update", {"step": 2, "kl": 0.25, "policy_loss": 0.5, "wall_seconds": 10.0})
        path = tmp_path / "update_log.csv"
        assert path.read_text() == "step,policy_loss,kl,wall_seconds\n1,0.5,,9.0\n2,0.5,0.25,10.0\n"

    def test_cut_back_to_a_saved_moment_and_go_on(self, tmp_path: Path) -> None:
        """Rows written since and a torn line go, in a new process too; a table that had no row has no file again."""
        sink = CsvSink(tmp_path)
        for step in (10, 20, 30):
            sink.write("train", {"step": step, "episode_return": step})
            if step == 20:
                moment = sink.state_dict()
        sink.write("eval", {"step": 30})
        before = (tmp_path / "train_log.csv").read_bytes()
        with open(tmp_path / "train_log.csv", "ab") as file:
            file.write(b"40,1")
        again = CsvSink(tmp_path)
        again.load_state_dict(moment)
        assert [row["step"] for row in read_csv(tmp_path / "train_log.csv")] == [10, 20]
        assert not (tmp_path / "eval_log.csv").exists()
        assert again.state_dict() == moment
        again.write("train", {"step": 30, "episode_return": 30})
        assert (tmp_path / "train_log.csv").read_bytes() == before
        assert again.state_dict() == {"train": 3, "update": 0, "eval": 0}

    def test_rows_that_are_lost_are_reported(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        sink = CsvSink(tmp_path)
        sink.write("train", {"step": 1})
        sink.load_state_dict({"train": 2})
        assert "has 1 rows, 2 were written" in caplog.text

    def test_unknown_table(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="Did you mean 'train'"):
            CsvSink(tmp_path).write("trian", {})


class TestMetrics:
    def test_windows_hold_the_last_hundred_games(self) -> None:
        tracker = MetricsTracker()
        assert tracker.get_episode_stats()["return_mean_100"] is None
        tracker.update(episodes=[Episode(0, float(score), 2 * score, 0) for score in range(150)])
        stats = tracker.get_episode_stats()
        assert stats == {"return_mean_100": 99.5, "length_mean_100": 199.0, "last_return": 149.0}
        assert tracker.episodes == 150

    def test_means_since_the_last_reset(self) -> None:
        tracker = MetricsTracker()
        assert tracker.get_training_stats() == {}
        weight = torch.ones(1, requires_grad=True)
        for value in (1.0, 2.0, 6.0):
            tracker.update({"loss": weight * value, "count": torch.tensor(int(value)), "plain": value})
        tracker.update({"loss": 3.0})
        assert tracker.get_training_stats() == {"loss": 3.0, "count": 3.0, "plain": 3.0}
        tracker.update(episodes=[Episode(0, 5.0, 1, 4)])
        tracker.reset()
        assert tracker.get_training_stats() == {}
        assert tracker.get_episode_stats()["last_return"] == 5.0

    def test_tensors_are_fetched_with_a_single_conversion(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tracker = MetricsTracker()
        conversions = []
        for name in ("tolist", "item", "__float__"):
            real = getattr(torch.Tensor, name)
            monkeypatch.setattr(torch.Tensor, name, lambda self, real=real: conversions.append(1) or real(self))
        for _ in range(2 * JOIN_VALUES + 5):
            tracker.update({"a": torch.tensor(1.0), "b": torch.tensor(2.0)})
        assert conversions == []
        assert tracker.get_training_stats() == {"a": 1.0, "b": 2.0}
        assert len(conversions) == 1

    @pytest.mark.parametrize("cut", [3, JOIN_VALUES, JOIN_VALUES + 100])
    def test_resuming_between_two_rows_changes_no_digit(self, cut: int) -> None:
        values = torch.rand(JOIN_VALUES + 500, generator=torch.Generator().manual_seed(1))
        whole, first, second = MetricsTracker(), MetricsTracker(), MetricsTracker()
        for index, value in enumerate(values):
            metrics = {"loss": value, "plain": float(value)}
            whole.update(metrics, episodes=[Episode(0, float(value), index, 0)])
            if index == cut:
                second.load_state_dict(first.state_dict())
            (first if index < cut else second).update(metrics, episodes=[Episode(0, float(value), index, 0)])
        assert second.get_training_stats() == whole.get_training_stats()
        assert second.get_episode_stats() == whole.get_episode_stats()
        assert second.episodes == whole.episodes


class Recorder:
    def __init__(self) -> None:
        self.rows: list[tuple[str, dict[str, Any]]] = []
        self.closed = 0

    def write(self, table: str, row: dict[str, Any]) -> None:
        self.rows.append((table, row))

    def close(self) -> None:
        self.closed += 1


class Broken(Recorder):
    def write(self, table: str, row: dict[str, Any]) -> None:
        super().write(table, row)
        raise OSError("disk full")


class TestLogger:
    def test_failing_sink_is_reported_once_and_left_out_in_the_end(self, caplog: pytest.LogCaptureFixture) -> None:
        broken, good = Broken(), Recorder()
        logger = Logger([broken, good])
        for number in range(5):
            logger.log_episode(Episode(0, 1.0, 5, 20), step=number, env_frames=4 * number)
        logger.close()
        assert (len(broken.rows), broken.closed) == (FAILURES_ALLOWED, 1)
        assert [row["episode_number"] for _, row in good.rows] == [1, 2, 3, 4, 5]
        assert good.closed == 1
        assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
        assert "Broken failed, the training goes on: disk full" in caplog.text
        assert "switched off" in caplog.records[-1].message

    def test_sink_that_recovers_stays(self, caplog: pytest.LogCaptureFixture) -> None:
        class Moody(Recorder):
            def write(self, table: str, row: dict[str, Any]) -> None:
                super().write(table, row)
                if len(self.rows) % 3:
                    raise ConnectionError("no network")

        moody = Moody()
        logger = Logger([moody])
        for number in range(9):
            logger.log_episode(Episode(0, 1.0, 5, 20), step=number, env_frames=4 * number)
        assert len(moody.rows) == 9
        assert "works again" in caplog.text

    def test_rows_a_full_disk_refuses_are_written_when_there_is_room(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The CSV files are the run's record: never switched off, nothing lost, nothing twice."""
        logger = Logger([CsvSink(tmp_path)])
        room = 10**6

        class File(io.FileIO):
            def write(self, data: Any) -> int:
                nonlocal room
                taken = super().write(bytes(data)[:room]) if room else 0
                room -= taken
                if not taken:
                    raise OSError(errno.ENOSPC, "No space left on device")
                return taken

        class FullDisk(FileSystem):
            def append(self, path: Path) -> io.FileIO:
                return File(path, "ab")

        monkeypatch.setattr(disk, "system", FullDisk())
        for number in range(20):
            if number == 5:
                room = 30  # a row and a bit of the next
            if number == 15:
                room = 10**6
            logger.log_episode(Episode(0, 1.0, 5, 20), step=number, env_frames=4 * number)
        logger.close()
        assert [row["step"] for row in read_csv(tmp_path / "train_log.csv")] == list(range(20))
        assert len(caplog.records) == 2

    def test_interrupt_is_not_swallowed(self) -> None:
        class Interrupted(Recorder):
            def write(self, table: str, row: dict[str, Any]) -> None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            Logger([Interrupted()]).log_step(step=1, env_frames=4)

    def test_update_row_has_means_windows_and_extras(self) -> None:
        sink = Recorder()
        logger = Logger([sink])
        logger.tracker.update({"loss": torch.tensor(2.0)}, episodes=[Episode(0, 3.0, 7, 28)])
        row = logger.log_step(step=5, env_frames=20, extra={"epsilon": 0.5})
        assert row == {
            "step": 5,
            "env_frames": 20,
            "loss": 2.0,
            "return_mean_100": 3.0,
            "length_mean_100": 7.0,
            "epsilon": 0.5,
        }
        assert sink.rows == [("update", row)]
        assert "loss" not in logger.log_step(step=6, env_frames=24)

    def test_episode_numbers_go_on_after_a_resume(self) -> None:
        first, second, sink = Logger([]), Recorder(), Recorder()
        first.log_episode(Episode(0, 1.0, 1, 4), step=1, env_frames=4)
        resumed = Logger([second, sink])
        resumed.load_state_dict(first.state_dict())
        resumed.log_episode(Episode(0, 1.0, 1, 4), step=2, env_frames=8)
        assert sink.rows[0][1]["episode_number"] == 2


class OnlineRun:
    """As W&B's, of a server that has ``step`` lines already."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.sent: list[tuple[int, int]] = []  # number of the line, the run's own step

    def define_metric(self, *names: Any, **options: Any) -> None:
        pass

    def log(self, line: dict[str, Any], *, step: int, commit: bool) -> None:
        self.sent.append((step, line["step"]))


@pytest.mark.parametrize(
    ("begin", "sent"),
    [
        (lambda logger: logger.load_state_dict({**MetricsTracker().state_dict(), "sinks": {}}), [(3, 11), (4, 12)]),
        (lambda logger: logger.begin_again(), []),  # the two rows are lines 0 and 1, which W&B has
    ],
    ids=["no state", "from the start"],
)
def test_wandb_after_a_resume_without_its_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: Any, sent: list[tuple[int, int]]
) -> None:
    run = OnlineRun(3)
    package = SimpleNamespace(init=lambda **_: run, Settings=dict, login=lambda **_: True)
    monkeypatch.setitem(sys.modules, "wandb", package)  # type: ignore[arg-type]
    logger = Logger([WandbSink(tmp_path, project="p")])
    begin(logger)
    for step in (11, 12):
        logger.log_step(step=step, env_frames=4 * step)
    assert run.sent == sent


class TestConsole:
    def test_lines_come_seldom_and_tell_the_figures(self) -> None:
        """REQ RUN-1."""
        now, stream = [0.0], io.StringIO()
        sink = ConsoleSink(10_000, prefill_until_step=1_000, stream=stream, clock=lambda: now[0])
        sink.write("update", {"loss": 0.125, "epsilon": 0.5})
        sink.write("train", {"episode_return": -21.0})
        for step in range(0, 6_100, 10):
            sink.advance(step)
            now[0] += 0.1
        lines = stream.getvalue().splitlines()
        assert len(lines) == 3  # at 0, 30 and 60 seconds
        assert lines[0].startswith("prefill 0/1,000 (0.0 %)")
        assert lines[1] == "train 3,000/10,000 (30.0 %)  loss 0.125  ε 0.5  return -21  100 steps/s  0:01:10 left"
        sink.write("eval", {**{f"eval_{k}": v for k, v in SUMMARY.items()}, "eval_type": "full", "step": 6_000})
        assert "full evaluation at step 6,000: mean return 10 ± 1.5 (8 to 12)" in stream.getvalue()
        sink.close()
        assert stream.getvalue().splitlines()[-1].startswith("train 6,090/10,000")
        assert "\x1b" not in stream.getvalue()

    def test_what_went_before_the_first_step_is_no_measure_of_speed(self) -> None:
        now, stream = [0.0], io.StringIO()
        sink = ConsoleSink(10_000, start_step=5_000, stream=stream, clock=lambda: now[0])
        now[0] = 600.0  # restoring the games of a resumed run
        for step in range(5_000, 8_010, 10):
            sink.advance(step)
            now[0] += 0.1
        assert [line.split("  ")[-2:] for line in stream.getvalue().splitlines()] == [
            ["train 5,000/10,000 (50.0 %)"],
            ["100 steps/s", "0:00:20 left"],
        ]

    def test_bars_are_drawn_at_most_five_times_a_second(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now, stream = [0.0], io.StringIO()
        sink = ConsoleSink(1_000, prefill_until_step=100, stream=stream, interactive=True, clock=lambda: now[0])
        shown: list[tuple[str, int]] = []
        real = sink._display.show
        monkeypatch.setattr(sink._display, "show", lambda *a: (shown.append(a[:2]), real(*a)))
        for step in range(1_000):
            now[0] = step / 500
            sink.advance(step)
        assert len(shown) == pytest.approx(10, abs=1)
        assert {phase for phase, _ in shown} == {"prefill", "train"}
        sink.close()
        assert "train" in stream.getvalue()

    def test_standard_output_stays_clean(self, capsys: pytest.CaptureFixture[str]) -> None:
        sink = ConsoleSink(10, interactive=True)
        sink.advance(5)
        print("result")
        sink.close()
        captured = capsys.readouterr()
        assert captured.out == "result\n"
        assert "train" in captured.err

    def test_closing_twice_shows_the_end_once(self) -> None:
        stream = io.StringIO()
        sink = ConsoleSink(10, stream=stream)
        sink.close()
        sink.close()
        assert len(stream.getvalue().splitlines()) == 1

    def test_closed_terminal_does_not_stop_the_training(self, caplog: pytest.LogCaptureFixture) -> None:
        now, stream = [0.0], io.StringIO()
        sink = ConsoleSink(10, stream=stream, clock=lambda: now[0])
        stream.close()
        for step in range(3):
            now[0] += 100.0
            sink.advance(step)
        sink.close()
        assert [record.levelname for record in caplog.records] == ["ERROR"]

    def test_null_console_says_nothing(self, capsys: pytest.CaptureFixture[str]) -> None:
        console = NullConsole()
        console.advance(1)
        console.write("train", {})
        console.close()
        captured = capsys.readouterr()
        assert captured.out + captured.err == ""

    def test_durations(self) -> None:
        assert format_duration(3725.9) == "1:02:05"
