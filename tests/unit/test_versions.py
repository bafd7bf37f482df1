"""Version records work with and without git, and tell nothing private."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from retrograd.training import versions
from retrograd.training.versions import collect_versions, write_versions


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package folder outside any checkout, and a working folder of its own."""
    package = tmp_path / "site-packages" / "retrograd" / "training"
    package.mkdir(parents=True)
    monkeypatch.setattr(versions, "__file__", str(package / "versions.py"))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_everything_is_recorded() -> None:
    """REQ RUN-10."""
    found = collect_versions(["retrograd", "train"], device="cpu")
    assert found["command_line"] == ["retrograd", "train"]
    assert {"torch", "numpy", "gymnasium", "ale-py"} <= found["packages"].keys()
    assert found["python"].count(".") == 2
    assert found["memory_bytes"] > 0
    assert found["cores"] >= 1
    assert found["cpu"]
    assert found["device"] == "cpu"


def test_outside_a_checkout(elsewhere: Path) -> None:
    found = collect_versions([])
    assert found["git"] == {"of": None, "commit": None, "dirty": None, "diff": ""}
    write_versions(elsewhere, found)
    assert [path.name for path in elsewhere.iterdir()] == ["versions.json"]


def test_without_git_installed(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(elsewhere))
    assert collect_versions([])["git"]["commit"] is None


def test_commit_and_local_changes(elsewhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(elsewhere, "init")
    assert collect_versions([])["git"]["commit"] is None
    (elsewhere / "a.py").write_text("old\n")
    git(elsewhere, "add", ".")
    git(elsewhere, "commit", "-m", "first")
    clean = collect_versions([])["git"]
    assert (clean["of"], clean["dirty"], clean["diff"]) == ("working folder", False, "")
    assert len(clean["commit"]) == 40

    (elsewhere / "a.py").write_text("new\n")
    found = collect_versions([])
    assert found["git"]["dirty"] is True
    out = elsewhere.parent / "run"
    out.mkdir()
    write_versions(out, found)
    assert "-old\n+new\n" in (out / "code.diff").read_text()
    assert json.loads((out / "versions.json").read_text())["git"] == {
        "of": "working folder",
        "commit": clean["commit"],
        "dirty": True,
    }
    monkeypatch.setattr(versions, "DIFF_LIMIT_CHARACTERS", 20)
    assert "cut here" in collect_versions([])["git"]["diff"]


def test_home_folder_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    words = ["/home/ada/bin/retrograd", "out=/home/ada", "/home/adam/x"]
    assert collect_versions(words)["command_line"] == ["~/bin/retrograd", "out=~", "/home/adam/x"]
