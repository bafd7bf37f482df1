"""What the documentation shows is there: commands that the command line takes, files that a clone has."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from retrograd import cli

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"""\]\(([^)\s]+)\)|(?:src|srcset|href)="([^"]+)\"""")
END_OF_COMMAND = {"|", ">", ">>", "&&", "||", ";", "&"}


def commands(text: str) -> list[list[str]]:
    """The words of every ``retrograd …`` that stands on a line of its own, without remarks behind it."""
    found = []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if match := re.match(r"(?:\$ |    |  )?retrograd (.*)", line):
            words = shlex.split(re.split(r"\s{3,}", match[1])[0], comments=True)
            end = next((place for place, word in enumerate(words) if word in END_OF_COMMAND), len(words))
            found.append(words[:end])
    return found


def helps() -> dict[str, str]:
    """The epilog of every command, and of the whole."""
    parser = cli._parser()
    subparsers = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {"retrograd": parser.epilog or "", **{name: one.epilog or "" for name, one in subparsers.choices.items()}}


@pytest.mark.parametrize("command", helps())
def test_every_example_of_a_help_can_be_typed(command):
    examples = commands(helps()[command])
    assert examples
    for words in examples:
        assert cli.parse(words).command == words[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_can_be_typed(page):
    for words in commands(page.read_text(encoding="utf-8")):
        assert cli.parse(words).command == words[0]


@pytest.mark.skipif(shutil.which("git") is None or not (ROOT / ".git").exists(), reason="no git, or no clone")
def test_every_file_that_a_page_leads_to_is_in_a_clone():
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],  # none that is ignored
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    files = {ROOT / name for name in listed.stdout.splitlines()}
    present = files | {folder for file in files for folder in file.parents}
    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in PAGES
        for match in LINK.finditer(page.read_text(encoding="utf-8"))
        if (target := (match[1] or match[2]).partition("#")[0]) and "://" not in target and "mailto:" not in target
        if (page.parent / target).resolve() not in present
    ]
    assert broken == []
