"""How fast a run would go here: a short copy of it under the clock, and the command that tells."""

from __future__ import annotations

import json

import pytest

from retrograd import cli
from retrograd.build.pace import measure_pace
from retrograd.config import ConfigManager

WORDS = ["env=cartpole", "hardware.device=cpu", "hardware.torch_threads=1", "training.num_envs=2"]
STEPS_AN_UPDATE = {"dqn": 4, "ppo": 16, "pqn": 16}


@pytest.mark.parametrize("agent", STEPS_AN_UPDATE)
def test_a_pace_is_that_of_the_run_in_small(agent):
    rollouts = [] if agent == "dqn" else ["agent.rollout_steps=8", "agent.minibatches=1"]
    config = ConfigManager(None).compose([*WORDS, f"agent={agent}", *rollouts])
    pace = measure_pace(config, 0.1)
    assert pace.seconds >= 0.1
    assert pace.steps / pace.updates == pytest.approx(STEPS_AN_UPDATE[agent], rel=0.2)
    assert set(pace.phases) == {"emulate", "act", "sample", "update"}
    assert sum(pace.phases.values()) == pytest.approx(pace.seconds, rel=0.5)
    assert pace.limit(0.02) > 0


def test_the_command_tells_the_speed_and_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["benchmark", *WORDS, "training.total_env_frames=3600000", "--seconds", "0.1"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["hours"] == pytest.approx(1000 / report["steps_per_second"], abs=0.01)
    assert sum(report["share_of_time"].values()) == pytest.approx(1, abs=0.01)
    assert report["share_of_limit"] == pytest.approx(
        report["steps_per_second"] / report["limit_steps_per_second"], rel=0.02
    )
    assert not list(tmp_path.iterdir())


def test_without_a_learner_there_is_no_limit(capsys):
    assert cli.main(["benchmark", *WORDS, "training.null_learner=true", "--seconds", "0.05"]) == 0
    assert json.loads(capsys.readouterr().out)["limit_steps_per_second"] is None


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seconds", "0"], "--seconds is 0.0, but must be above 0"),
        (["--seconds", "nan"], "--seconds is nan"),
        (["agent=a3c", "env=cartpole"], "agent.kind=a3c: its workers play and learn in processes of their own"),
        (["agent=random", "env=cartpole"], "agent.kind=random: it does not learn"),
    ],
)
def test_what_cannot_be_measured_is_refused(words, message, capsys):
    assert cli.main(["benchmark", *words]) == 2
    assert message in capsys.readouterr().err
