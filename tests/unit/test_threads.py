"""Thread counts by measuring: the fastest are taken, remembered, and written into the run's config."""

from __future__ import annotations

import json

import pytest

from retrograd.build import threads
from retrograd.build.threads import cache_file, choose, measure, with_measured_threads
from retrograd.config import ConfigManager
from retrograd.core.errors import UsageError

WORDS = ["env=cartpole", "agent=dqn", "hardware.measure_threads=true", "hardware.device=cpu", "training.num_envs=2"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "candidates", lambda: [1, 2, 4])


def compose(*words: str):
    return ConfigManager(None).compose([*WORDS, *words])


def test_the_fastest_counts_are_found_without_trying_all():
    tried = []

    def speed(torch_threads: int, env_threads: int) -> float:
        tried.append((torch_threads, env_threads))
        return 100 - abs(torch_threads - 2) * 10 - abs(env_threads - 1)

    assert choose(speed, compose()) == {"torch_threads": 2, "env_threads": 1}
    assert len(tried) == len(set(tried)) == 5


def test_what_the_user_has_set_is_left_alone(monkeypatch):
    def most(torch_threads: int, env_threads: int) -> float:
        return torch_threads + env_threads

    assert choose(most, compose("hardware.torch_threads=1")) == {"torch_threads": 1, "env_threads": 4}
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert choose(most, compose()) == {"torch_threads": 2, "env_threads": 4}


def test_counts_are_measured_once_and_written_into_the_config(monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(threads, "measure", lambda config, one, two: calls.append((one, two)) or one - two)
    first = with_measured_threads(compose())
    assert (first["hardware"]["torch_threads"], first["hardware"]["env_threads"]) == (4, 1)
    assert first["hardware"]["measure_threads"] is False
    assert "hardware.torch_threads=4 hardware.env_threads=1 (measured in" in capsys.readouterr().err
    measured = len(calls)
    assert with_measured_threads(compose()) == first
    assert len(calls) == measured
    assert "measured before" in capsys.readouterr().err
    with_measured_threads(compose("agent.batch_size=64"))  # another run: measured again
    assert len(calls) > measured
    assert len(json.loads(cache_file().read_text())) == 2


@pytest.mark.parametrize("content", ["no json", "[1]", '{"KEY": {"torch_threads": 0, "env_threads": true}}'])
def test_a_broken_cache_is_measured_anew(monkeypatch, content):
    monkeypatch.setattr(threads, "measure", lambda config, one, two: one + two)
    cache_file().parent.mkdir(parents=True)
    cache_file().write_text(content.replace("KEY", threads._key(compose())))
    assert with_measured_threads(compose())["hardware"]["torch_threads"] == 4


def test_nothing_is_measured_unless_asked_for(monkeypatch):
    monkeypatch.setattr(threads, "measure", lambda *_: pytest.fail("measured"))
    plain = ConfigManager(None).compose(["env=cartpole"])
    assert with_measured_threads(plain) is plain
    given = compose("hardware.torch_threads=1", "hardware.env_threads=1")
    assert with_measured_threads(given)["hardware"]["torch_threads"] == 1


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(UsageError, match=r"agent.kind=a3c: its workers"):
        with_measured_threads(compose("agent=a3c", "training.num_envs=1"))
    with pytest.raises(UsageError, match="cannot be made anew"):
        with_measured_threads(compose(), env=object())


@pytest.mark.parametrize("agent", ["dqn", "ppo"])
def test_a_measurement_is_a_run_in_small(agent, monkeypatch):
    monkeypatch.setattr(threads, "SECONDS", 0.05)
    words = ["env=cartpole", f"agent={agent}", "hardware.device=cpu", "training.num_envs=2"]
    config = ConfigManager(None).compose([*words, *(["agent.rollout_steps=8"] if agent == "ppo" else [])])
    assert measure(config, 1, 1) > 0
