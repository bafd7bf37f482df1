"""Agents that come with the package: small, whole, and called by name."""

from __future__ import annotations

import json

import pytest

from retrograd import cli
from retrograd.training.manifest import verify
from retrograd.training.shipped import find_agent, shipped_agents

MOST_BYTES = 5 * 2**20
AGENTS = shipped_agents()


def test_there_are_some():
    assert {"breakout", "pong", "pong_sticky"} <= set(AGENTS)


@pytest.mark.parametrize("name", AGENTS)
def test_a_shipped_agent_is_small_whole_and_says_how_good_it_is(name):
    folder = AGENTS[name]
    assert sum(path.stat().st_size for path in folder.iterdir()) < MOST_BYTES
    verify(folder)
    score = json.loads((folder / "metrics.json").read_text())["mean_return"]
    assert f"{score:.2f}" in (folder / "README.md").read_text()


@pytest.mark.parametrize("name", AGENTS)
def test_a_shipped_agent_plays_by_its_name(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert (
        cli.main(["evaluate", name, "--episodes", "1", "eval.num_envs=1", "env_protocol.eval_max_episode_frames=2000"])
        == 0
    )
    assert json.loads(capsys.readouterr().out)["episodes"] == 1


def test_a_folder_of_that_name_goes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "breakout").mkdir()
    assert find_agent("breakout").absolute() == tmp_path / "breakout"


def test_an_unknown_name_is_told_the_known_ones(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["watch", "breakuot"]) == 2
    assert "'breakout'" in capsys.readouterr().err
