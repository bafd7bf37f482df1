"""Bad input: a clear message, exit code 2, nothing half-written, and torch not even loaded."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from retrograd import RandomPlayer, cli
from retrograd.build import build_trainer
from retrograd.cli.targets import check_target
from retrograd.config import ConfigManager
from retrograd.core.errors import RetrogradError, UsageError
from retrograd.doctor import examine
from retrograd.training import durable

SMALL = ["env=cartpole", "replay.capacity=1000", "training.warmup_random_steps=100", "training.total_env_frames=100"]
CASES = {
    "unknown game": (["env=pongg"], "'pong'"),
    "unknown key": (["agent.gama=0.9"], "'agent.gamma'"),
    "wrong type": (["agent.batch_size=many"], "whole number"),
    "gamma above one": (["agent.gamma=1.01"], "from 0 to 1"),
    "batch larger than the buffer": (
        ["agent.batch_size=5000", "replay.capacity=4000"],
        "must not exceed replay.capacity=4000",
    ),
    "replay that does not fit": (["replay.capacity=900000000"], "the largest capacity that fits is"),
    "an end without a beginning": (
        ["agent=ppo", "agent.adaptive_kl_end=0.01"],
        "agent.adaptive_kl_end=0.01 has no meaning without agent.adaptive_kl",
    ),
    "no such device": (["hardware.device=tpu"], "cuda"),
    "no such config file": (["--config", "missing.yaml"], "missing.yaml"),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case, tmp_path, capsys):
    arguments, message = CASES[case]
    assert cli.main(["train", *arguments, f"output_dir={tmp_path / 'outputs'}"]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""
    assert not (tmp_path / "outputs").exists()


def test_the_largest_capacity_that_fits_does_fit(monkeypatch, tmp_path, capsys):
    from retrograd.build import check_memory
    from retrograd.config import ConfigManager

    memory = psutil.virtual_memory()._replace(available=4_000_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    assert cli.main(["train", f"output_dir={tmp_path}"]) == 2
    fits = int(capsys.readouterr().err.split("fits is ")[1].split(",")[0])
    check_memory(ConfigManager(None).compose([f"replay.capacity={fits}"]))
    assert 300_000 < fits < 500_000


def test_an_output_folder_that_exists_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("data")
    assert cli.main(["train", f"output_dir={tmp_path}", "run_name=mine"]) == 2
    assert "exists already" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["precious"]


def test_an_output_folder_that_cannot_be_made(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["train", *SMALL, f"output_dir={tmp_path / 'file'}"]) == 2
    assert "cannot be made" in capsys.readouterr().err


def test_a_run_whose_config_cannot_be_written_leaves_no_folder(tmp_path, monkeypatch, capsys):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(durable, "write_text", fail)
    assert cli.main(["train", *SMALL, f"output_dir={tmp_path}", "run_name=x"]) == 6
    assert "cannot be written: No space left" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("file", "folder", "file is a file"),
        ("folder", "file", "folder is a folder"),
        ("file/below/it", "file", "file is a file"),
        ("L" * 300, "folder", "File name too long"),
        ("~/videos", "folder", "$HOME"),
    ],
)
def test_a_target_that_cannot_be_written_is_refused(path, kind, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError) as caught:
        check_target(path, kind)
    assert message in str(caught.value)


def test_a_target_that_can_be_written_is_not_made_yet(tmp_path):
    assert check_target(tmp_path / "new" / "deep", "folder") == tmp_path / "new" / "deep"
    assert check_target(tmp_path, "folder") == tmp_path
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "L" * 300),
        ("resume", "L" * 300),
        ("export", "pong", "--output", "file/x"),
        ("video", "pong", "--output", "file/x"),
        ("video", "pong", "--output", "."),
        ("video", "pong", "--output", "/proc/x.mp4"),
        ("values", "pong", "--output", "file/x"),
        ("explain", "pong", "--no-plots", "--output", "file/x"),
        ("sweep", "agent=dqn", "env=cartpole", "output_dir=file"),
    ],
    ids=lambda words: words[0],
)
def test_a_path_of_the_user_never_ends_in_a_traceback(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    assert cli.main(arguments) == 2
    assert arguments[-1].split("=")[-1].split("/")[0] in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("command", ["video", "watch"])
@pytest.mark.parametrize("game", ["DeepSea", "Counter", "Chain", "MemoryChain", "BitFlip"])
def test_a_game_without_pictures_is_told_so(command, game, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    agent = RandomPlayer(f"retrograd/{game}-v0", {"eval.num_envs": 1}).save(tmp_path / "agent")
    assert cli.main([command, str(agent)]) == 1
    assert "the environment gave no pictures" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


@pytest.mark.parametrize("command", ["video", "watch"])
def test_a_slash_in_a_game_makes_no_folder(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("SDL_VIDEODRIVER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    agent = RandomPlayer("retrograd/Catch-v0", {"eval.num_envs": 1}).save(tmp_path / "agent")
    assert cli.main([command, str(agent)]) == 0
    assert json.loads(capsys.readouterr().out)["video"] == "retrograd_Catch-v0_0.mp4"
    assert (tmp_path / "retrograd_Catch-v0_0.mp4").is_file()


@pytest.mark.parametrize("command", ["evaluate", "video", "watch"])
def test_an_unreadable_checkpoint_is_named(command, tmp_path, capsys):
    assert cli.main([command, str(tmp_path)]) == 2
    assert "no checkpoint in" in capsys.readouterr().err
    folder = tmp_path / "checkpoints" / "step_000000001"
    folder.mkdir(parents=True)
    (folder / "agent.pt").write_bytes(b"not a checkpoint")
    assert cli.main([command, str(folder)]) == 2
    assert str(folder) in capsys.readouterr().err


def test_an_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["train", "seed=1", "--sed=2"])
    assert stopped.value.code == 2
    assert "--sed=2" in capsys.readouterr().err


def test_no_agent_named(capsys):
    assert cli.main(["evaluate", "eval.epsilon=0.1"]) == 2
    assert "name one run folder" in capsys.readouterr().err


def test_a_refusal_comes_before_torch_is_loaded():
    code = (
        "import sys; from retrograd import cli; code = cli.main(['train', 'agent.gamma=2']);"
        "sys.exit(code if 'torch' not in sys.modules else 99)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60).returncode == 2


def test_help_loads_nothing_heavy():
    code = (
        "import sys; import retrograd.cli;"
        "print([name for name in ('torch', 'numpy', 'hydra', 'gymnasium', 'rich') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["train", "evaluate", "video", "watch", "zoo", "export", "doctor"])
def test_every_command_helps_with_examples(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main([command, "--help"])
    assert stopped.value.code == 0
    assert f"retrograd {command}" in capsys.readouterr().out.split("examples:")[1]


def test_show_config_prints_and_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "--show-config", "env=ms_pacman", "seed=5"]) == 0
    out = capsys.readouterr().out
    assert "game_id: ALE/MsPacman-v5" in out
    assert "# protocol: ALE/MsPacman-v5, paper_v4: no sticky actions" in out
    assert list(Path(tmp_path).iterdir()) == []


def test_doctor_examines_and_predicts(capsys):
    assert cli.main(["doctor", "env=cartpole", "replay.capacity=10000", "training.warmup_random_steps=100"]) == 0
    report = capsys.readouterr().out
    assert "FAIL" not in report
    for word in ("torch", "memory", "104 games", "video", "run memory", "sweep", "dashboard", "minatar"):
        assert word in report


@pytest.mark.parametrize(
    "overrides",
    [
        "agent=dqn",
        "agent=ppo training.double_buffered=true",
        "agent=ppo training.double_buffered=true training.num_envs=3",
        "agent=ppo agent.minibatches=100000",
        "agent=recurrent_ppo agent.sequence_steps=1000",
        "agent=dqn env=Pendulum-v1",
        "agent=random hardware.measure_threads=true",
        "agent=impala hardware.workers=true",
        "agent=dqn hardware.cuda_graph=true",
        "agent=dqn hardware.device=cuda",
        "agent=dqn wandb.enabled=true wandb.mode=offline",
        "agent=dqn replay.capacity=900000000",
        "agent=dqn checkpoint.keep_last=1000000000",
        "agent=dqn run_name=taken",
        "agent=dqn output_dir=file",
    ],
)
def test_doctor_says_of_a_run_what_the_run_itself_says(overrides, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    memory, disk = psutil.virtual_memory(), shutil.disk_usage(tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)  # both are told: neither may change in between
    monkeypatch.setattr(shutil, "disk_usage", lambda _: disk)
    (tmp_path / "outputs" / "taken").mkdir(parents=True)
    (tmp_path / "file").touch()
    words = [*SMALL, *overrides.split()]
    if "agent=dqn" not in words and "agent=random" not in words:
        words.remove("replay.capacity=1000")  # they have none
    report, healthy = examine(words)
    assert {path.name for path in tmp_path.rglob("*")} == {"outputs", "file", "taken"}
    reason = refusal(words)
    assert healthy == (reason is None), report
    assert reason is None or reason in report or "cannot be made" in reason


def refusal(words):
    """Why a run with this config does not begin, or None."""
    try:
        build_trainer(ConfigManager().compose(words), quiet=True).close()
    except RetrogradError as error:
        return str(error)
    return None
