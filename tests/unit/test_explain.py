"""``retrograd explain``: every kind of agent, the files it leaves, and what it refuses."""

import json
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium import Env, spaces

from retrograd.build.builder import Builder
from retrograd.cli import main
from retrograd.cli.explain import _folder
from retrograd.config import ConfigManager
from retrograd.core.errors import UsageError
from retrograd.core.types import ArraySpec, DiscreteActions, EnvSpec
from retrograd.experiments.explanation import Wishes, explain_game, saliency_maps
from retrograd.experiments.figures.explanation import draw_telling, draw_visits, telling_steps
from retrograd.experiments.figures.film import Film
from retrograd.experiments.figures.overlay import lay_over
from retrograd.experiments.figures.style import DARK, LIGHT, themed
from retrograd.experiments.q_values import Counting, opinion_of, outputs_of
from retrograd.experiments.visits import Visits
from retrograd.networks.saliency import gradient_maps

FEW = Wishes(max_steps=6, every_steps=4, visit_steps=12)
SMALL = ("training.total_env_frames=160", "training.warmup_random_steps=20", "training.num_envs=2")
SMALL += ("replay.capacity=200", "eval.full_episodes=1", "eval.record_video=false", "hardware.device=cpu")
POLICY = ("training.total_env_frames=512", "training.num_envs=2", "agent.rollout_steps=16", "hardware.device=cpu")
POLICY += ("eval.full_episodes=1", "eval.record_video=false")


@pytest.fixture(autouse=True)
def _one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def explained(folder, *overrides, env=None, wishes=FEW):
    builder = Builder(ConfigManager(None).compose(["hardware.device=cpu", *overrides]), env=env)
    viewer = builder.viewer(0)
    agent = builder.agent(viewer.spec)
    folder.mkdir(exist_ok=True)
    return agent, explain_game(agent, viewer, folder, step=0, counting=Counting(0.9), wishes=wishes)


def members(path):
    with np.load(path, allow_pickle=False) as held:
        return {name: held[name] for name in held.files}


class Dark(Env):
    """Vectors, and nothing to see."""

    observation_space = spaces.Box(-1, 1, (3,), np.float32)
    action_space = spaces.Discrete(2)
    render_mode = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(3, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.full(3, self.time / 5, np.float32), 1.0, self.time == 4, False, {}


@pytest.mark.parametrize(
    ("agent", "names"),
    [
        (("agent=c51", "agent.atoms=11"), {"perturbation", "gradient"}),
        (("agent=ppo",), {"perturbation", "gradient", "perturbation_value", "gradient_value"}),
        (("agent=recurrent_ppo",), {"perturbation", "gradient", "perturbation_value", "gradient_value"}),
    ],
    ids=["c51", "ppo", "recurrent_ppo"],
)
def test_a_game_is_explained(tmp_path, agent, names):
    _, found = explained(tmp_path, "env=catch_screen", *agent)
    length = len(found.trace.value)
    frames, maps = members(tmp_path / "frames.npz"), members(tmp_path / "saliency.npz")
    assert sorted(frames) == [f"frame_{step:06d}" for step in range(length)]
    assert all(picture.shape == (210, 160, 3) for picture in frames.values())
    assert found.map_steps == tuple(range(0, length, 4))
    assert set(found.largest) == names
    for name in names:
        assert min(found.largest[name]) > 0
        drawn = maps[f"{name}_000000"]
        assert (drawn.shape, drawn.dtype, int(drawn.max())) == ((84, 84), np.uint8, 255)
    held = members(tmp_path / "game.npz")
    assert ("mass" in held) == (agent[0] == "agent=c51")
    assert ("q" in held) == (agent[0] == "agent=c51")
    visits = members(tmp_path / "visits.npz")
    assert found.visits.steps == 12
    assert visits["share"].shape == (84, 84)
    assert 0 < visits["share"].max() < 1
    pictures = list(Film(found, "title").pictures())
    assert len(pictures) == length
    assert len({picture.shape for picture in pictures}) == 1
    assert not np.array_equal(pictures[0], pictures[-1])


def test_a_recurrent_agent_is_explained_with_the_memory_it_had(tmp_path):
    agent, _ = explained(tmp_path, "env=catch_screen", "agent=recurrent_ppo", wishes=Wishes(1, 1, (), 0))
    obs = np.random.default_rng(0).integers(0, 256, (1, 1, 84, 84)).astype(np.uint8)
    obs = np.repeat(obs, agent.network.encoder.convolutions[0].in_channels, axis=1)
    fresh = agent.initial_state(1)
    later = {name: array + 1.0 for name, array in fresh.items()}
    kept = {name: array.copy() for name, array in later.items()}
    maps = [saliency_maps(agent, obs, state, opinion_of(agent, obs, state), ["gradient"])["gradient"] for state in (fresh, later)]  # noqa: E501 # fmt: skip
    assert not np.allclose(maps[0], maps[1])
    assert all(np.array_equal(later[name], kept[name]) for name in kept)


def test_a_map_is_of_evaluation_and_leaves_the_network_as_it_was(tmp_path):
    """Learning scales the gradient of dueling heads and improves the estimates of spectral norms; maps must not."""
    parts = ("agent.network=dueling", "agent.encoder=impala", "agent.spectral_norm=true")
    agent, _ = explained(tmp_path, "env=catch_screen", "agent=dqn", *parts, wishes=Wishes(1, 1, (), 0))
    image = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (1, 4, 84, 84)).astype(np.float32))
    before = {name: tensor.clone() for name, tensor in agent.online.state_dict().items()}
    true = gradient_maps(outputs_of(agent), image, 2)["choice"]
    assert agent.online.training
    assert all(torch.equal(before[name], tensor) for name, tensor in agent.online.state_dict().items())
    agent.online.encoder.eval()  # keeps the estimates, so that only the head differs
    scaled = gradient_maps(lambda images: {"choice": agent.online.get_q_values(images)}, image, 2)["choice"]
    assert torch.allclose(true, scaled * 2**0.5, rtol=1e-3, atol=1e-9)


def test_noise_stays_out_of_the_maps(tmp_path):
    agent, _ = explained(tmp_path, "env=catch_screen", "agent=dqn", "agent.noisy=true", wishes=Wishes(2, 4, (), 0))
    obs = np.random.default_rng(0).integers(0, 256, (1, 4, 84, 84)).astype(np.uint8)
    agent.online(torch.from_numpy(obs))  # learning draws new noise
    first, again = (saliency_maps(agent, obs, None, opinion_of(agent, obs), ["gradient"])["gradient"] for _ in range(2))
    agent.online(torch.from_numpy(obs))
    assert np.array_equal(first, again)
    assert np.array_equal(first, saliency_maps(agent, obs, None, opinion_of(agent, obs), ["gradient"])["gradient"])


def test_vectors_have_values_and_a_heatmap_but_no_maps(tmp_path):
    _, found = explained(tmp_path, "agent=dqn", env=Dark)
    assert (found.pictures, found.map_steps, found.largest) == (0, (), {})
    assert found.visits.kind == "plane"
    assert float(found.visits.share.sum()) == pytest.approx(1.0)
    with pytest.raises(UsageError, match="leave it out"):
        explained(tmp_path / "again", "agent=dqn", env=Dark, wishes=Wishes(saliency=("gradient",)))


def test_a_screen_is_visited_where_something_is_that_is_not_background():
    visits = Visits(EnvSpec("x", ArraySpec((2, 6, 6), np.dtype(np.uint8), 0, 255), DiscreteActions(2), frame_stack=2))
    for time in range(6):
        frames = np.full((1, 2, 6, 6), 50, np.uint8)
        frames[0, -1, 2, time] = 255
        frames[0, 0, 5, 5] = 255  # an older frame, seen before
        frames[0, -1, 4, 0] = 200 if time % 2 else 0  # there half of the time
        visits.see(frames)
    heatmap = visits.heatmap()
    assert np.allclose(heatmap.share[2], 1 / 6)
    assert heatmap.share[4, 0] == 0.5
    assert heatmap.share.sum() == pytest.approx(1.5)
    assert heatmap.background[5, 5] == 50


def test_vectors_are_counted_on_the_plane_they_vary_in():
    spec = EnvSpec("x", ArraySpec((4,), np.dtype(np.float32)), DiscreteActions(2))
    visits = Visits(spec)
    for time in range(100):
        visits.see(np.array([[time, -time, 3.0, np.sin(time)]], np.float32))
    heatmap = visits.heatmap()
    assert "67% of the variance" in heatmap.x_label
    assert "33% of the variance" in heatmap.y_label
    assert (heatmap.share.sum(axis=0) > 0).all()  # time goes evenly
    assert (heatmap.share > 0).sum() > 80
    two = Visits(EnvSpec("x", ArraySpec((2,), np.dtype(np.float32)), DiscreteActions(2)))
    two.see(np.array([[1.0, 2.0]], np.float32))
    assert (two.heatmap().x_label, two.heatmap().share.sum()) == ("observation 0", 1.0)


def test_an_overlay_shows_where_and_only_where():
    picture = np.full((20, 20, 3), 100, np.uint8)
    shares = np.zeros((10, 10), np.float32)
    shares[7, 7] = 1.0
    laid = lay_over(picture, shares).astype(int)
    assert np.abs(laid[14:16, 14:16] - laid[0, 0]).max() > 60
    assert (laid[:10, :10] == laid[0, 0]).all()
    assert lay_over(picture, None) is picture


@pytest.mark.parametrize(
    ("wishes", "message"),
    [
        ({"max_steps": 0}, "--steps is 0"),
        ({"every_steps": 0}, "--every is 0"),
        ({"visit_steps": -1}, "--visit-steps is -1"),
        ({"max_steps": 10**9}, "from 1 to 10000"),
        ({"saliency": ("gradiant",)}, "'gradient'"),
    ],
)
def test_nonsense_is_refused(wishes, message):
    with pytest.raises(UsageError, match=message):
        Wishes(**wishes)


def test_the_command_writes_into_the_run(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "env=catch_screen", "preset=modern", *SMALL, "run_name=run"]) == 0
    capsys.readouterr()
    few = ["--steps", "5", "--every", "4", "--visit-steps", "10"]
    assert main(["explain", "outputs/run", *few, "--no-plots"]) == 0
    report = json.loads(capsys.readouterr().out)
    (folder,) = (tmp_path / "outputs" / "run" / "explain").iterdir()
    assert folder.name == f"step_{report['step']:09d}"
    names = {path.name for path in folder.iterdir()}
    assert {"game.json", "game.csv", "game.npz", "frames.npz", "saliency.npz", "visits.npz", "game.mp4"} <= names
    facts = json.loads((folder / "game.json").read_text())
    assert (facts["agent"], facts["game"], facts["pictures"]) == ("dqn", "catch_screen", facts["length_steps"])
    assert facts["saliency"]["steps"] == [0, 4]
    before = folder.stat().st_mtime_ns
    assert main(["explain", "outputs/run", *few]) == 2
    assert "--replace" in capsys.readouterr().err
    plain = [*few, "--saliency", "none", "--no-plots", "--no-video"]
    assert main(["explain", "outputs/run", *plain, "--replace", "--checkpoint", "latest"]) == 0
    assert folder.stat().st_mtime_ns != before
    assert not (folder / "game.mp4").exists()
    assert main(["explain", "outputs/run", *plain, "--seed", "7"]) == 0
    assert (folder.parent / f"{folder.name}_seed7" / "game.json").is_file()
    capsys.readouterr()
    for words, message in {
        ("--output", str(tmp_path / "outputs" / "run"), "--replace"): "no explanation",
        ("--output", ".", "--replace"): "no explanation",
        ("--output", "outputs/run/summary.json/x"): "is a file",
        ("--checkpoint", "step_9"): "There are",
        ("--checkpoint", "../../x"): "none of that name",
        ("--saliency", ","): "empty",
        ("--seed", "-1"): "seed",
    }.items():
        assert main(["explain", "outputs/run", *words]) == 2
        assert message in capsys.readouterr().err
    assert (tmp_path / "outputs" / "run" / "summary.json").is_file()
    assert not [path for path in folder.parent.iterdir() if path.name.startswith(".")]


def test_games_of_a_bundle_lie_beside_each_other(tmp_path):
    bundle = SimpleNamespace(step=12, path=tmp_path / "pong")
    folders = [_folder(Namespace(output=None, seed=seed), bundle, {"env": {"name": "ALE/Pong"}}) for seed in (None, 7)]
    assert folders == [Path("explain_ALE_Pong_12"), Path("explain_ALE_Pong_12_seed7")]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "overrides",
    [
        ("agent=c51", "preset=modern", *SMALL),
        ("agent=qr_dqn", "preset=modern", *SMALL),
        ("agent=iqn", "preset=modern", *SMALL),
        ("agent=ppo", *POLICY),
        ("agent=recurrent_ppo", *POLICY),
        ("agent=pqn", *POLICY),
        ("agent=a2c", *POLICY),
    ],
    ids=lambda overrides: overrides[0],
)
def test_every_kind_of_real_run_is_explained(tmp_path, capsys, monkeypatch, overrides):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "env=catch_screen", *overrides, "run_name=run"]) == 0
    words = ["--steps", "5", "--every", "4", "--visit-steps", "10", "--saliency", "perturbation,gradient,integrated"]
    assert main(["explain", "outputs/run", *words]) == 0
    (folder,) = (tmp_path / "outputs" / "run" / "explain").iterdir()
    assert (folder / "game.mp4").stat().st_size > 1000
    assert {"moments.png", "moments_dark.png", "visits.svg"} <= {path.name for path in folder.iterdir()}
    maps = members(folder / "saliency.npz")
    assert {name.rsplit("_", 1)[0] for name in maps} >= {"perturbation", "gradient", "integrated"}


def test_telling_steps_have_maps_and_reasons(tmp_path):
    _, found = explained(tmp_path, "env=catch_screen", "agent=ppo", wishes=Wishes(9, 3, ("gradient",), 0))
    chosen = telling_steps(found)
    assert set(chosen) <= set(found.map_steps)
    reasons = ", ".join(chosen.values())
    assert all(word in reasons for word in ("highest value", "lowest value", "clearest choice", "largest gradient map"))
    for theme in (LIGHT, DARK):
        with themed(theme):
            figure = draw_telling(theme, found, "title")
            assert len(figure.axes) == len(chosen) * 4  # the picture, the actor's and the critic's map, the actions
            assert draw_visits(theme, found.visits, "title").axes
