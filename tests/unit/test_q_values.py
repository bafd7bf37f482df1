"""What an agent expected along a game: every kind of agent, the data it leaves and the pictures."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from gymnasium import Env, spaces

from retrograd.build.builder import Builder
from retrograd.cli import main
from retrograd.config import ConfigManager
from retrograd.core.errors import UsageError
from retrograd.experiments.figures.style import DARK, LIGHT
from retrograd.experiments.figures.values import draw_moments, draw_trace, quantile
from retrograd.experiments.q_values import Counting, opinion_of, trace_game, write_trace

HALF = Counting(0.5)
FEW = ("agent.atoms=7", "agent.quantiles=5", "agent.iqn_cosines=8", "agent.iqn_policy_samples=8")


class Steps(Env):
    """Six steps that pay 1, 0, 2, 0, 0, 3; the observation is the time."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}  # noqa: RUF012
    observation_space = spaces.Box(0, 10, (2,), np.float32)
    rewards = (1.0, 0.0, 2.0, 0.0, 0.0, 3.0)

    def __init__(self, actions=None, render_mode=None):
        self.action_space = actions or spaces.Discrete(3)
        self.render_mode = render_mode
        self.time = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.array([0, 1], np.float32), {}

    def step(self, action):
        self.time += 1
        obs = np.array([self.time, 1], np.float32)
        return obs, self.rewards[self.time - 1], self.time == 6, False, {}

    def render(self):
        return np.full((8, 8, 3), 40 * self.time, np.uint8)


def trace_of(*overrides, env=lambda: Steps(render_mode="rgb_array"), **options):
    builder = Builder(ConfigManager(None).compose(["hardware.device=cpu", *overrides]), env=env)
    viewer = builder.viewer(0)
    agent = builder.agent(viewer.spec)
    return agent, trace_game(agent, viewer, step=0, **{"counting": HALF, **options})


def returns(*reward, ends=(), counting=HALF):
    known = counting.returns(np.array(reward), np.array([time in ends for time in range(len(reward))]))
    return [None if np.isnan(value) else value for value in known.tolist()]


def test_returns_to_come_are_discounted_backwards_from_an_end_the_learner_knows():
    assert returns(1.0, 0.0, 2.0, ends=[2]) == [1.5, 1.0, 2.0]
    assert returns(1.0, 0.0, 2.0, ends=[0, 2]) == [1.0, 1.0, 2.0]  # a lost life, and the game goes on
    assert returns(1.0, 0.0, 2.0, ends=[0]) == [1.0, None, None]  # nobody knows what would have come
    assert returns(1.0, ends=[0], counting=Counting(0.5, scaled=True)) == [None]


def test_rewards_are_counted_as_the_learner_of_a_config_counts_them():
    lives = ["env=breakout", "hardware.device=cpu", "eval.num_envs=1"]
    for words, clip, scaled, life in (
        (["agent=dqn"], True, False, True),
        (["agent=dqn", "env_protocol.terminal_on_life_loss_train=false"], True, False, False),
        (["agent=dqn", "preset.reward_clip=false"], False, False, True),
        (["agent=ppo", "training.normalize_rewards=true", "preset.reward_clip=false"], False, True, True),
    ):
        builder = Builder(ConfigManager(None).compose([*lives, *words]))
        viewer = builder.viewer(0, with_lives=True)
        counting = Counting.of(builder.config.values, viewer.spec)
        assert counting == Counting(0.99, clip, scaled)
        ends = 0
        for _ in range(400):
            viewer.send(np.ones(1, np.int64))
            answer = viewer.recv()
            ends += int(answer.terminated[0] and not answer.reset[0])
        viewer.close()
        assert bool(ends) == life, words


def test_a_trace_holds_the_values_before_each_step_and_what_came():
    agent, trace = trace_of("agent=dqn", "eval.epsilon=0.0")
    observations = np.stack([np.arange(6), np.ones(6)], axis=1).astype(np.float32)
    with torch.no_grad():
        q = agent.online.get_q_values(torch.from_numpy(observations)).numpy()
    assert np.allclose(trace.q, q, atol=1e-6)
    assert np.array_equal(trace.action, q.argmax(1))
    assert np.allclose(trace.expected, q.max(1), atol=1e-6)
    assert trace.reward.tolist() == list(Steps.rewards)
    assert trace.return_to_come[-2:].tolist() == [1.5, 3.0]
    assert trace.score == 6.0
    summary = trace.summary()
    assert summary["mean_error"] == pytest.approx(float((q.max(1) - trace.return_to_come).mean()), abs=1e-5)
    clipped = trace_of("agent=dqn", counting=Counting(0.5, clip=True))[1]
    assert clipped.reward.tolist() == [1, 0, 1, 0, 0, 1]


@pytest.mark.parametrize("kind", ["c51", "quantile", "iqn"])
def test_distributions_have_mass_one_and_the_mean_of_the_values(kind):
    few = [*FEW, "agent.noisy=true"]
    agent, trace = trace_of("agent=dqn", f"agent.distributional={kind}", *few, "eval.epsilon=0.0")
    assert trace.mass.shape == trace.places.shape
    assert trace.mass.shape[:2] == (6, 3)
    assert np.allclose(trace.mass.sum(-1), 1.0, atol=1e-5)
    mean = (trace.mass * trace.places).sum(-1)
    # 64 fractions and the 8 of acting are two ways to the same mean
    assert np.allclose(mean, trace.q, atol=0.05 if kind == "iqn" else 1e-4)
    again = opinion_of(agent, np.array([[0, 1]], np.float32))
    assert np.array_equal(again.mass, trace.mass[0]), "noise got into the picture"


@pytest.mark.parametrize("agent", ["ppo", "recurrent_ppo"])
def test_policies_show_their_critic_and_their_probabilities(agent):
    player, trace = trace_of(f"agent={agent}")
    assert trace.q is None
    assert np.allclose(trace.probability.sum(1), 1.0, atol=1e-5)
    assert len(np.unique(trace.value)) == 6
    if agent == "recurrent_ppo":  # the memory goes on from step to step
        fresh = opinion_of(player, np.array([[3, 1]], np.float32))
        assert fresh.value != pytest.approx(trace.value[3], abs=1e-7)


def test_real_actions_have_a_value_and_no_names():
    box = spaces.Box(-1, 1, (2,), np.float32)
    _, trace = trace_of("agent=ppo", env=lambda: Steps(box, render_mode="rgb_array"))
    assert trace.action_names == ()
    assert trace.action.shape == (6, 2)
    draw_trace(LIGHT, trace, "t")


def test_moments_are_the_extremes_or_those_asked_for():
    _, trace = trace_of("agent=dqn", "eval.epsilon=0.0")
    labels = {label: moment for moment in trace.moments for label in moment.label.split(", ")}
    assert labels["highest value"].step == trace.value.argmax()
    assert labels["lowest value"].step == trace.value.argmin()
    gaps = np.sort(trace.q, axis=1)
    assert labels["clearest choice"].step == (gaps[:, -1] - gaps[:, -2]).argmax()
    _, asked = trace_of("agent=dqn", at_steps=[2, 4])
    assert [moment.step for moment in asked.moments] == [2, 4]
    assert (asked.moments[1].picture == 160).all()
    with pytest.raises(UsageError, match="before step 99"):
        trace_of("agent=dqn", at_steps=[2, 99])


def test_a_game_that_is_left_early_has_no_returns():
    _, trace = trace_of("agent=dqn", max_steps=3)
    assert (trace.score, len(trace.value)) == (None, 3)
    assert np.isnan(trace.return_to_come).all()
    assert trace.summary()["mean_error"] is None


def test_the_random_player_has_no_values():
    with pytest.raises(UsageError, match="no values"):
        trace_of("agent=random")


def test_the_files_hold_the_trace(tmp_path):
    _, trace = trace_of("agent=dqn", "agent.distributional=c51", *FEW)
    table, arrays = write_trace(trace, tmp_path / "new", "game_1")
    rows = list(csv.DictReader(table.open()))
    assert [float(row["q_action 1"]) for row in rows] == pytest.approx(trace.q[:, 1].tolist(), rel=1e-4)
    assert rows[2]["action"] == trace.action_names[trace.action[2]]
    with np.load(arrays, allow_pickle=False) as held:
        assert np.array_equal(held["mass"], trace.mass)
        assert held["action_names"].tolist() == list(trace.action_names)


def test_quantiles_of_weighted_places_in_any_order():
    places, mass = np.array([[3.0, 1.0, 2.0]]), np.array([[0.5, 0.2, 0.3]])
    assert [quantile(places, mass, share)[0] for share in (0.05, 0.2, 0.21, 0.5, 0.51, 1.0)] == [1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("agent", ["dqn", "agent.distributional=c51", "agent.distributional=quantile", "ppo"])
def test_every_kind_is_drawn(agent):
    chosen = [agent, *FEW] if "." in agent else [f"agent={agent}"]
    _, trace = trace_of(*chosen)
    for theme in (LIGHT, DARK):
        figure = draw_trace(theme, trace, "title")
        assert figure.axes[0].get_title() == "title"
        assert len(figure.axes) == (1 if agent == "dqn" else 2)
        lines = [line.get_label() for line in figure.axes[0].get_lines()]
        assert "return that came" in lines
        assert len(draw_moments(theme, trace).axes) == 2 * len(trace.moments)


def test_many_atoms_that_share_the_mass_evenly_are_all_shown():
    _, trace = trace_of("agent=dqn", "agent.distributional=c51", "agent.atoms=201")
    even = replace(trace, mass=np.full_like(trace.mass, 1 / 201))
    low, high = draw_moments(LIGHT, even).axes[1].get_xlim()
    assert low <= -10
    assert high >= 10


def test_the_command_writes_data_and_pictures(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = [
        "training.total_env_frames=60",
        "training.warmup_random_steps=20",
        "replay.capacity=500",
        "training.num_envs=2",
    ]
    few += ["eval.full_episodes=1", "eval.record_video=false", "hardware.device=cpu"]
    assert main(["train", "env=retrograd/Catch-v0", "preset=modern", *few, "run_name=run"]) == 0
    capsys.readouterr()
    assert main(["values", "outputs/run", "--output", "seen", "--at", "0", "3", "eval.epsilon=0"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["episodes"]) == 1
    names = {path.name for path in (tmp_path / "seen").iterdir()}
    assert {"game_1.csv", "game_1.npz", "game_1.png", "game_1.svg", "game_1_moments.png", "values.json"} <= names
    assert main(["values", "outputs/run", "--output", "seen"]) == 2
    assert main(["values", "outputs/run", "--episodes", "0"]) == 2
    assert main(["values", "outputs/run", "--at", "-1"]) == 2
    assert main(["values", "outputs/run", "--at", "0", "three"]) == 2
    assert "whole number" in capsys.readouterr().err
    assert main(["values", "outputs/run", "--output", "seen/values.json/x"]) == 2
