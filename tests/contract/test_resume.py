"""Exact resume: a run that was stopped, killed or saved anywhere ends as one that was never touched, bit for bit."""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import retrograd
from retrograd import build, cli
from retrograd.config import SHIPPED, Config, ConfigManager
from retrograd.core import disk
from retrograd.core.errors import CheckpointError, InUseError
from retrograd.experiments.fingerprint import differences, fingerprint
from retrograd.tracking.csv import read_csv
from retrograd.training.lock import RunLock

AGENTS = sorted(path.stem for path in SHIPPED.glob("agent/*.yaml"))
ASYNCHRONOUS = ("a3c", "impala")
# made of parts that other files bring, too: left to the night
COMBINED = (
    "c51", "double", "dqn_dopamine", "minatar_c51", "minatar_double", "minatar_dqn", "minatar_rainbow", "modern",
    "munchausen", "munchausen_iqn", "qr_dqn", "rainbow_dopamine",
)  # fmt: skip
SMALL = [
    "env=retrograd/Catch-v0", "training.num_envs=2", "training.log_every_steps=20", "training.max_episode_steps=null",
    "training.light_eval_every_frames=40", "training.full_eval_every_frames=null", "training.total_episodes=null",
    "training.eval_every_episodes=null", "training.checkpoint_every_episodes=null", "eval.light_episodes=1",
    "eval.full_episodes=1", "eval.num_envs=1", "eval.record_video=false", "hardware.torch_threads=1",
    "hardware.device=cpu", "checkpoint.every_frames=48",
]  # fmt: skip
BY_KIND = {
    "value": [
        "agent.batch_size=4", "agent.update_frequency=2", "agent.replay_start_size=20", "replay.capacity=80",
        "training.warmup_random_steps=20", "agent.target_update_freq=7", "replay.storage=raw",
    ],
    "pqn": ["agent.rollout_steps=8", "agent.minibatches=2", "agent.epochs=2"],
    "a2c": ["agent.rollout_steps=5"],
    "ppo": ["agent.rollout_steps=8", "agent.minibatches=2", "agent.epochs=2"],
    "recurrent_ppo": ["agent.rollout_steps=8", "agent.minibatches=2", "agent.epochs=2", "agent.hidden_size=16"],
}  # fmt: skip
PONG = [
    "env=pong", "env_protocol.max_episode_frames=120", "env_protocol.eval_max_episode_frames=60",
    "training.light_eval_every_frames=null", "checkpoint.every_frames=100",
]  # fmt: skip


def compose(folder: Path, name: str, agent: str, words: Sequence[str] = (), frames: int = 104) -> Config:
    manager = ConfigManager(user_folder=None)
    kind = manager.compose([f"agent={agent}"])["agent"]["kind"]
    if agent == "btr":  # its encoder reads images, which the nightly form has
        words = [
            "agent.encoder=nature",
            "agent.impala_scale=1",
            "agent.impala_pool=null",
            "agent.spectral_norm=false",
            *words,
        ]
    place = [f"output_dir={folder}", f"run_name={name}", f"training.total_env_frames={frames}"]
    return manager.compose([f"agent={agent}", *SMALL, *BY_KIND.get(kind, []), *words, *place])


def finish(trainer: Any) -> Path:
    try:
        trainer.train()
    finally:
        trainer.close()
    folder: Path = trainer.folder
    return folder


def interrupted(config: Config, stops: Sequence[int], lost_steps: int = 3) -> Path:
    """Saved at each stop, then trained on for what a kill would lose, and built anew from the checkpoint."""
    trainer = build.build_trainer(config, quiet=True)
    for stop in stops:
        try:
            while trainer.run.step < stop:
                assert trainer.advance()
            trainer.save_checkpoint()
            for _ in range(lost_steps):
                trainer.advance()
        finally:
            trainer.close()
        trainer = build.resume_trainer(trainer.folder, quiet=True).trainer
        assert stop <= trainer.run.step < stop + 2 * trainer.envs.num_envs
    return finish(trainer)


def whole(config: Config) -> Path:
    return finish(build.build_trainer(config, quiet=True))


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(name, marks=[pytest.mark.nightly] if name in COMBINED else [])
        for name in AGENTS
        if name not in ASYNCHRONOUS
    ],
)
def test_every_agent_goes_on_exactly(agent: str, tmp_path: Path) -> None:
    """REQ RUN-5: stopped in the warm-up, inside a rollout and after an evaluation."""
    left = fingerprint(whole(compose(tmp_path, "whole", agent)))
    right = fingerprint(interrupted(compose(tmp_path, "stopped", agent), (13, 61)))
    assert differences(left, right) == []
    assert {"player", "envs", "rng", "run", "logger", "update_log.csv", "eval_log.csv", "train_log.csv"} <= left.keys()


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("dqn", ["replay=prioritized", "replay.storage=compressed", "replay.capacity=60"]),
        ("dqn", ["hardware.backend=gymnasium"]),
        pytest.param("rainbow", ["replay.storage=compressed", "replay.capacity=60"], marks=pytest.mark.nightly),
        pytest.param("ppo", [], marks=pytest.mark.nightly),
        pytest.param("btr", ["agent.encoder=impala", "agent.spectral_norm=true"], marks=pytest.mark.nightly),
    ],
)
def test_atari_goes_on_exactly(agent: str, words: list[str], tmp_path: Path) -> None:
    """REQ RUN-5, ENV-5: both back ends, games and frame stacks included."""
    words = [*PONG, *words]
    left = fingerprint(whole(compose(tmp_path, "whole", agent, words, frames=320)))
    right = fingerprint(interrupted(compose(tmp_path, "stopped", agent, words, frames=320), (41,)))
    assert differences(left, right) == []


@pytest.mark.parametrize("words", [["training.normalize_observations=true", "training.normalize_rewards=true"]])
def test_normalizers_go_on_exactly(words: list[str], tmp_path: Path) -> None:
    words = ["env=CartPole-v1", *words]
    left = fingerprint(whole(compose(tmp_path, "whole", "ppo", words)))
    right = fingerprint(interrupted(compose(tmp_path, "stopped", "ppo", words), (57,)))
    assert differences(left, right) == []


def test_saving_more_often_changes_nothing(tmp_path: Path) -> None:
    left = fingerprint(whole(compose(tmp_path, "seldom", "dqn", ["checkpoint.every_frames=null"])))
    right = fingerprint(whole(compose(tmp_path, "often", "dqn", ["checkpoint.every_frames=10"])))
    assert differences(left, right) == []


def stop_while_judging(trainer: Any) -> None:
    """A signal at the first action of the next evaluation."""
    act = trainer.agent.act

    def stopping(obs: Any, state: Any = None, *, step: int, explore: bool) -> Any:
        trainer.run.stop_requested |= not explore
        return act(obs, state, step=step, explore=explore)

    trainer.agent.act = stopping


def test_two_evaluations_at_one_step_are_both_owed_after_a_signal(tmp_path: Path) -> None:
    """One by frames and one by episodes: three games of 9 steps in each of two rows make 54."""
    words = ["training.light_eval_every_frames=54", "training.eval_every_episodes=6"]
    left = whole(compose(tmp_path, "whole", "random", words, frames=80))
    trainer = build.build_trainer(compose(tmp_path, "stopped", "random", words, frames=80), quiet=True)
    stop_while_judging(trainer)
    finish(trainer)
    assert trainer.run.step == 54
    right = finish(build.resume_trainer(trainer.folder, quiet=True).trainer)
    assert [row["eval_type"] for row in read_csv(right / "eval_log.csv")] == ["light", "full", "final"]
    assert differences(fingerprint(left), fingerprint(right)) == []


@pytest.mark.parametrize("eval_type", ["full", "final"])
def test_a_signal_while_a_video_is_made_owes_the_evaluation(
    eval_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The video draws from the evaluation's random numbers: one that was cut short must leave no trace in them."""
    from retrograd.training import video

    words = ["training.light_eval_every_frames=null", "eval.record_video=true", "eval.epsilon=0.9"]
    words.append(f"training.full_eval_every_frames={40 if eval_type == 'full' else 'null'}")
    left = whole(compose(tmp_path, "whole", "dqn", words, frames=60))
    trainer = build.build_trainer(compose(tmp_path, "stopped", "dqn", words, frames=60), quiet=True)

    def stopped_at_the_fourth(*arguments: Any, **options: Any) -> Iterator[Any]:
        for number, portion in enumerate(play(*arguments, **options)):
            trainer.run.stop_requested |= number == 3
            yield portion

    play = video.play_game
    monkeypatch.setattr(video, "play_game", stopped_at_the_fourth)
    finish(trainer)
    assert trainer.run.step == (40 if eval_type == "full" else 60)
    assert not (trainer.folder / "eval_log.csv").exists()
    monkeypatch.setattr(video, "play_game", play)
    right = finish(build.resume_trainer(trainer.folder, quiet=True).trainer)
    assert differences(fingerprint(left), fingerprint(right)) == []
    assert len(list(right.rglob("video.mp4"))) == len(list(left.rglob("video.mp4"))) > 0


def test_a_video_that_fails_leaves_the_random_numbers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever its encoder breaks off, the run goes on as one without videos."""
    words = ["training.full_eval_every_frames=40", "eval.epsilon=0.9"]
    left = whole(compose(tmp_path, "without", "dqn", words, frames=60))
    monkeypatch.setattr("retrograd.training.video._check_finished", lambda path: 1 / 0)
    right = whole(compose(tmp_path, "failing", "dqn", [*words, "eval.record_video=true"], frames=60))
    assert differences(fingerprint(left), fingerprint(right)) == []
    assert not list(right.glob(".*video*"))


def test_a_forgotten_part_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mutants that the tests above are made for: the step in flight, or the replay's steps, not restored."""
    from retrograd.training.player import Player

    left = fingerprint(whole(compose(tmp_path, "whole", "dqn")))
    monkeypatch.setattr(Player, "load_state_dict", lambda self, state: None)
    right = fingerprint(interrupted(compose(tmp_path, "stopped", "dqn"), (51,)))
    assert "online" in differences(left, right)


def test_without_replay_a_run_goes_on_and_says_what_is_not_exact(tmp_path: Path) -> None:
    config = compose(tmp_path, "light", "dqn", ["checkpoint.replay=false"])
    trainer = build.build_trainer(config, quiet=True)
    while trainer.run.step < 60:
        trainer.advance()
    trainer.save_checkpoint()
    trainer.close()
    assert not (trainer.folder / "replay").exists()
    resumed = build.resume_trainer(trainer.folder, quiet=True)
    assert any("replay is not part of the checkpoint" in note for note in resumed.notes)
    assert len(resumed.trainer.loop.replay) == 0
    finish(resumed.trainer)


class TestOldCheckpoints:
    """The best one and those of keep_every_frames stay; their replay does not, as no run goes on from them."""

    def saved_run(self, folder: Path) -> Path:
        words = ["checkpoint.every_frames=null", "checkpoint.keep_every_frames=20", "checkpoint.keep_last=2"]
        trainer = build.build_trainer(compose(folder, "run", "dqn", words), quiet=True)
        for stop in (20, 40, 60, 80):
            while trainer.run.step < stop:
                trainer.advance()
            trainer.save_checkpoint()
        trainer.close()
        return trainer.folder

    def test_only_the_last_ones_have_a_replay(self, tmp_path: Path) -> None:
        run = self.saved_run(tmp_path)
        names = [path.name for path in sorted((run / "checkpoints").glob("step_*"))]
        assert names == ["step_000000020", "step_000000040", "step_000000060", "step_000000080"]
        assert len(list((run / "replay").glob("index-*"))) == len(list((run / "replay").glob("light-*"))) == 2

    def test_when_no_newer_one_is_left_an_old_one_goes_on_without(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = self.saved_run(tmp_path)
        for name in ("step_000000060", "step_000000080"):
            (run / "checkpoints" / name / "agent.pt").write_bytes(b"damaged")
        resumed = build.resume_trainer(run, quiet=True)
        resumed.trainer.close()
        assert resumed.trainer.run.step == 40
        assert "step_000000040 is loaded without its replay" in caplog.text
        assert any("not exact: the replay is not part of the checkpoint" in note for note in resumed.notes)

    def test_a_damaged_replay_does_not_send_a_run_back_to_one_without(self, tmp_path: Path) -> None:
        run = self.saved_run(tmp_path)
        for segment in (run / "replay").glob("segment-*"):
            segment.write_bytes(b"damaged")
        with pytest.raises(CheckpointError, match=r"segment-\d+\.zst: has 7 bytes"):
            build.resume_trainer(run, quiet=True)


class TestTheCommand:
    def stopped_run(self, folder: Path, **changes: Any) -> Path:
        trainer = build.build_trainer(compose(folder, "run", "random", frames=240).with_values(changes), quiet=True)
        while trainer.run.step < 100:
            trainer.advance()
        trainer.run.stop_requested = True
        return finish(trainer)

    def test_to_the_end_and_on(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run = self.stopped_run(tmp_path)
        assert cli.main(["resume", str(run)]) == 0
        shown = capsys.readouterr()
        assert json.loads(shown.out)["step"] == 240
        assert "going on at step 100 from step_000000100" in shown.err
        assert cli.main(["resume", str(run)]) == 2
        assert "is finished: 240 frames" in capsys.readouterr().err
        assert cli.main(["resume", f"+checkpoint_path={run}/checkpoints/latest", "training.total_env_frames=300"]) == 0
        assert json.loads(capsys.readouterr().out)["step"] == 300
        assert [row["step"] for row in read_csv(run / "eval_log.csv")] == [40, 80, 120, 160, 200, 240, 240, 280, 300]
        lines = [json.loads(line) for line in (run / "resumes.jsonl").read_text().splitlines()]
        assert [line["step"] for line in lines] == [100, 240]
        assert lines[1]["changed"] == {"training.total_env_frames": 300}
        assert json.loads((run / "summary.json").read_text())["env_frames"] == 300

    def test_stopped_in_its_final_evaluation_beyond_the_budget(self, tmp_path: Path) -> None:
        """Eight rows reach 100 frames with the 104th."""
        config = compose(tmp_path, "run", "random", ["training.num_envs=8"], frames=100)
        trainer = build.build_trainer(config.with_values({"training.light_eval_every_frames": None}), quiet=True)
        stop_while_judging(trainer)
        run = finish(trainer)
        assert not (run / "summary.json").exists()
        assert cli.main(["resume", str(run), "training.total_env_frames=90"]) == 2
        assert cli.main(["resume", str(run)]) == 0
        assert json.loads((run / "summary.json").read_text())["env_frames"] == 104

    def test_what_a_resume_changed_outlives_a_kill_before_the_next_checkpoint(self, tmp_path: Path) -> None:
        run = whole(compose(tmp_path, "run", "random", ["checkpoint.every_frames=null"]))
        changes = {"training.total_env_frames": 140, "checkpoint.keep_last": 5}
        build.resume_trainer(run, changes, quiet=True).trainer.close()
        resumed = build.resume_trainer(run, quiet=True)
        assert any("the budget is 140 frames, not 104" in note for note in resumed.notes)
        assert resumed.trainer.store.rotation.keep_last == 5
        resumed.trainer.close()
        build.resume_trainer(run, {"training.total_env_frames": 120}, quiet=True).trainer.close()
        assert retrograd.resume(run)["env_frames"] == 120

    def test_a_replay_that_was_given_up_stays_given_up(self, tmp_path: Path) -> None:
        trainer = build.build_trainer(compose(tmp_path, "run", "dqn", ["checkpoint.every_frames=null"]), quiet=True)
        while trainer.run.step < 40:
            trainer.advance()
        trainer.save_checkpoint()
        trainer.close()
        next((trainer.folder / "replay").glob("segment-*")).write_bytes(b"damaged")
        for changes in ({"checkpoint.replay": False}, {}):
            resumed = build.resume_trainer(trainer.folder, changes, quiet=True)
            assert len(resumed.trainer.loop.replay) == 0
            resumed.trainer.close()

    @pytest.mark.parametrize("text", ["training: 3", "training: {total_env_frames: -1}", "[", ""])
    def test_a_config_file_that_is_damaged_is_told_and_not_needed(self, tmp_path: Path, text: str) -> None:
        run = self.stopped_run(tmp_path)
        (run / ".hydra" / "config.yaml").write_text(text)
        resumed = build.resume_trainer(run, quiet=True)
        assert any("config.yaml" in note and "the checkpoint's settings" in note for note in resumed.notes)
        assert finish(resumed.trainer) == run

    def test_on_a_full_disk_nothing_is_changed_and_the_reason_is_told(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Full(disk.FileSystem):
            def create(self, path: Path) -> Any:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

        run = self.stopped_run(tmp_path)
        logged = (run / "train_log.csv").read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(disk, "system", Full())
            assert cli.main(["resume", str(run), "training.total_env_frames=300"]) == 6
        told = capsys.readouterr().err
        assert f"{run} cannot go on: No space left on device" in told
        assert (run / "train_log.csv").read_bytes() == logged
        assert not (run / "resumes.jsonl").exists()
        assert cli.main(["resume", str(run)]) == 0

    def test_logs_that_cannot_be_emptied_end_a_beginning_anew(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Stubborn(disk.FileSystem):
            def unlink(self, path: Path) -> None:
                raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

        trainer = build.build_trainer(compose(tmp_path, "run", "random", ["checkpoint.every_frames=null"]), quiet=True)
        for _ in range(20):
            trainer.advance()
        trainer.close()
        monkeypatch.setattr(disk, "system", Stubborn())
        assert cli.main(["resume", str(trainer.folder)]) == 6
        assert "cannot go on: Input/output error" in capsys.readouterr().err

    def test_its_own_files_count_as_room(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A disk with room for the run has it, too, when a part of the run lies there; looked at is the run's own."""
        trainer = build.build_trainer(compose(tmp_path, "run", "dqn", ["checkpoint.every_frames=null"]), quiet=True)
        while trainer.run.step < 40:
            trainer.advance()
        trainer.save_checkpoint()
        trainer.close()
        run = shutil.move(trainer.folder, tmp_path / "elsewhere")
        looked_at = []

        def usage(place: Path) -> Any:
            looked_at.append(Path(place))
            return type("Usage", (), {"free": 0})

        monkeypatch.setattr("shutil.disk_usage", usage)
        assert cli.main(["resume", str(run)]) == 2
        assert looked_at == [run]
        assert "0.00 GB free and the run needs" in capsys.readouterr().err
        (run / "checkpoints" / "ballast").write_bytes(bytes(10**7))
        assert cli.main(["resume", str(run)]) == 0

    def test_a_failure_of_before_is_no_longer_the_runs_state(self, tmp_path: Path) -> None:
        run = self.stopped_run(tmp_path)
        (run / "failure.json").write_text('{"error": "non-finite loss"}')
        (run / ".video-96.mp4").write_bytes(b"of a save that was killed")
        build.resume_trainer(run, quiet=True).trainer.close()
        assert not (run / "failure.json").exists()
        assert "non-finite" in (run / "failure_before_resume.json").read_text()
        assert not (run / ".video-96.mp4").exists()

    @pytest.mark.parametrize(
        ("word", "message"),
        [
            ("agent.gamma=0.5", "agent.gamma=0.5 conflicts with the run, which has agent.gamma=0.99"),
            ("env=breakout", "env=breakout conflicts with the run"),
            ("hardware.backend=native", "hardware.backend=native conflicts with the run"),
            ("training.total_env_frame=9", "Did you mean 'training.total_env_frames'"),
            ("checkpoint.keep_last=1", "checkpoint.keep_last=1 must be a whole number of at least 2"),
            ("training.total_env_frames=50", "has played 100 frames already"),
        ],
    )
    def test_what_cannot_be_is_refused(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, message: str
    ) -> None:
        """REQ RUN-6"""
        run = self.stopped_run(tmp_path)
        before = sorted(path for path in run.rglob("*") if path.name != ".lock")
        assert cli.main(["resume", str(run), word]) == 2
        assert message in capsys.readouterr().err
        assert sorted(path for path in run.rglob("*") if path.name != ".lock") == before

    def test_the_same_value_is_no_conflict(self, tmp_path: Path) -> None:
        assert cli.main(["resume", str(self.stopped_run(tmp_path)), "agent.gamma=0.99", "seed=42"]) == 0

    def test_killed_before_the_summary_writes_only_that(self, tmp_path: Path) -> None:
        run = whole(compose(tmp_path, "run", "random"))
        summary = json.loads((run / "summary.json").read_text())
        before = fingerprint(run)
        (run / "summary.json").unlink()
        assert cli.main(["resume", str(run)]) == 0
        again = json.loads((run / "summary.json").read_text())
        assert {**again, "wall_seconds": 0} == {**summary, "wall_seconds": 0}
        assert differences(before, fingerprint(run)) == []

    def test_killed_before_the_first_checkpoint_begins_again_aloud(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = compose(tmp_path, "run", "random", ["checkpoint.every_frames=null"])
        trainer = build.build_trainer(config, quiet=True)
        for _ in range(20):
            trainer.advance()
        trainer.close()
        assert cli.main(["resume", str(trainer.folder)]) == 0
        assert "begins again at step 0" in capsys.readouterr().err
        left = fingerprint(whole(compose(tmp_path, "whole", "random", ["checkpoint.every_frames=null"])))
        assert differences(left, fingerprint(trainer.folder)) == []

    def test_damage_falls_back_aloud_and_never_begins_anew(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        run = self.stopped_run(tmp_path)
        newest = (run / "checkpoints" / "latest").resolve()
        (newest / "agent.pt").write_bytes(b"damaged")
        resumed = build.resume_trainer(run, quiet=True)
        assert "agent.pt: has 7 bytes" in caplog.text
        assert resumed.trainer.run.step == 96
        resumed.trainer.close()
        for folder in (run / "checkpoints").glob("step_*"):
            (folder / "agent.pt").unlink()
        with pytest.raises(CheckpointError, match=r"no valid checkpoint in .*agent\.pt: cannot be read"):
            build.resume_trainer(run, quiet=True)

    def test_a_damaged_replay_is_noticed(self, tmp_path: Path) -> None:
        trainer = build.build_trainer(compose(tmp_path, "run", "dqn", ["checkpoint.every_frames=null"]), quiet=True)
        while trainer.run.step < 40:
            trainer.advance()
        trainer.save_checkpoint()
        trainer.close()
        segment = next((trainer.folder / "replay").glob("segment-*"))
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 1
        segment.write_bytes(data)
        with pytest.raises(CheckpointError, match=rf"{segment.name}: its content differs"):
            build.resume_trainer(trainer.folder, quiet=True)
        resumed = build.resume_trainer(trainer.folder, {"checkpoint.replay": False}, quiet=True)
        assert len(resumed.trainer.loop.replay) == 0
        resumed.trainer.close()

    def test_no_run_there(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["resume", str(tmp_path / "nothing")]) == 2
        assert "there is no run folder" in capsys.readouterr().err
        assert cli.main(["resume", str(tmp_path)]) == 2
        assert "is not a run folder" in capsys.readouterr().err


class TestTheLock:
    def test_a_second_process_is_refused_with_the_holder(self, tmp_path: Path) -> None:
        trainer = build.build_trainer(compose(tmp_path, "run", "random"), quiet=True)
        with pytest.raises(InUseError, match=r"run is in use by process \d+ on "):
            build.resume_trainer(trainer.folder, quiet=True)
        trainer.close()
        assert (trainer.folder / ".lock").read_text() == ""
        RunLock(trainer.folder).release()

    def test_of_many_one_wins(self, tmp_path: Path) -> None:
        """REQ: D8 in small; each thread opens the file anew, as a process would."""
        won: list[RunLock] = []
        ready = threading.Barrier(8)

        def start() -> None:
            ready.wait()
            try:
                won.append(RunLock(tmp_path))
            except InUseError:
                return

        threads = [threading.Thread(target=start) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        won[0].release()


SETTINGS: dict[str, Any] = {
    "training.num_envs": 2, "eval.full_episodes": 1, "eval.num_envs": 1, "eval.record_video": False,
    "agent.rollout_steps": 8, "agent.minibatches": 2, "agent.epochs": 1, "hardware.torch_threads": 1,
}  # fmt: skip


class TestFromPython:
    def test_learning_twice_stretches_the_schedules(self, tmp_path: Path) -> None:
        """The second half ran at the last learning rate of the first, which is 0."""
        model = retrograd.PPO("retrograd/Catch-v0", SETTINGS | {"output_dir": str(tmp_path)}, quiet=True)
        model.learn(total_frames=160)
        learner: Any = model.agent.learner  # type: ignore[attr-defined]
        assert learner.lr(160) == 0.0
        before = learner.optimizer.param_groups[0]["lr"]
        model.learn(total_frames=160)
        assert learner.lr(160) == pytest.approx(model.config["preset"]["lr"] / 2)
        assert 0.0 < learner.optimizer.param_groups[0]["lr"] < before
        assert model.folder is not None
        assert retrograd.resume(model.folder, {"training.total_env_frames": 400})["env_frames"] == 400

    def test_a_loaded_agent_goes_on_counting_in_a_new_run(self, tmp_path: Path) -> None:
        settings = SETTINGS | {"output_dir": str(tmp_path), "run_name": "first"}
        retrograd.PPO("retrograd/Catch-v0", settings, quiet=True).learn(total_frames=150)
        again = retrograd.PPO.load(tmp_path / "first")
        again._quiet = True
        again.learn(total_frames=90)
        assert again.folder is not None
        assert again.folder != tmp_path / "first"
        assert json.loads((again.folder / "summary.json").read_text())["env_frames"] == 240
        assert again.agent.updates == 2 * (150 // 16) + 2 * (90 // 16)  # type: ignore[attr-defined]

    def test_a_loaded_agent_killed_at_once_goes_on_with_what_it_had_learned(self, tmp_path: Path) -> None:
        settings = SETTINGS | {"output_dir": str(tmp_path), "run_name": "first"}
        retrograd.PPO("retrograd/Catch-v0", settings, quiet=True).learn(total_frames=150)
        folders = []
        for killed in (False, True):
            again = retrograd.PPO.load(tmp_path / "first")
            again._quiet = True
            trainer = again._begin(90)
            for _ in range(10 if killed else 0):
                trainer.advance()
            if killed:
                trainer.close()
                trainer = build.resume_trainer(trainer.folder, quiet=True).trainer
                assert trainer.run.step == 150
            folders.append(finish(trainer))
        assert differences(*map(fingerprint, folders)) == []

    def test_counting_on_is_no_measure_of_speed(self, tmp_path: Path) -> None:
        trainer = build.build_trainer(compose(tmp_path, "run", "random", frames=2000), quiet=True)
        now = 100.0
        trainer._clock = lambda: now
        trainer.begin_at(1000)
        now = 102.0
        while trainer.run.step < 1020:
            trainer.advance()
        trainer.close()
        assert [row["steps_per_second"] for row in read_csv(trainer.folder / "update_log.csv")] == [10.0]

    def test_learning_twice_killed_at_once_keeps_budget_and_threads(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        measured = {"hardware.torch_threads": 1, "hardware.measure_threads": False}
        monkeypatch.setattr(
            "retrograd.build.run.with_measured_threads", lambda config, env: config.with_values(measured)
        )
        settings = SETTINGS | {"output_dir": str(tmp_path), "hardware.torch_threads": None}
        model = retrograd.PPO("retrograd/Catch-v0", settings, quiet=True)
        model.learn(total_frames=160)
        assert model._trainer is not None
        with monkeypatch.context() as patch:
            patch.setattr(model._trainer, "train", lambda: None)  # killed before its first step
            model.learn(total_frames=160)
        assert model.folder is not None
        resumed = build.resume_trainer(model.folder, quiet=True)
        resumed.trainer.close()
        assert resumed.trainer.run.plan.total_steps == 320
        assert "torch_threads: 1" in resumed.trainer.config_yaml


@pytest.mark.nightly
@pytest.mark.parametrize("agent", ASYNCHRONOUS)
def test_asynchronous_workers_go_on_and_say_what_is_not_exact(agent: str, tmp_path: Path) -> None:
    config = compose(tmp_path, "run", agent, ["agent.workers=1", "training.num_envs=1"], frames=20_000)
    trainer = build.build_trainer(config, quiet=True)
    while trainer.run.step < 500:
        trainer.advance()
    trainer.save_checkpoint()
    saved, updates = trainer.run.step, trainer.agent.updates  # type: ignore[attr-defined]
    trainer.close()
    resumed = build.resume_trainer(trainer.folder, quiet=True)
    assert any("begin anew" in note for note in resumed.notes)
    assert resumed.trainer.run.step == saved
    assert resumed.trainer.agent.updates == updates  # type: ignore[attr-defined]
    finish(resumed.trainer)


@pytest.mark.parametrize("agent", ["dqn", "ppo"])
def test_a_run_that_paused_goes_on_as_if_it_had_not(agent: str, tmp_path: Path) -> None:
    """REQ RUN-5: schedules know nothing of the pause; a pause that the budget comes before is none."""
    left = whole(compose(tmp_path, "whole", agent, ["training.pause_at_frames=104"]))
    assert (left / "summary.json").is_file()
    trainer = build.build_trainer(compose(tmp_path, "paused", agent, ["training.pause_at_frames=61"]), quiet=True)
    told = trainer.train()
    trainer.close()
    assert told == {"stopped_at_step": 62, "checkpoint": "step_000000062"}  # two rows: a step late
    assert not (trainer.folder / "summary.json").exists()
    resumed = build.resume_trainer(trainer.folder, {"training.pause_at_frames": 80}, quiet=True).trainer
    assert resumed.train()["stopped_at_step"] == 80
    resumed.close()
    right = finish(build.resume_trainer(trainer.folder, quiet=True).trainer)
    assert differences(fingerprint(left), fingerprint(right)) == []
