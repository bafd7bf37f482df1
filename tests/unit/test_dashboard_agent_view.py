"""The Agent view draws every kind of explained game, says what is missing, and believes no file."""

from __future__ import annotations

import io
import json
import zipfile

import numpy as np
import pytest

pytest.importorskip("streamlit", reason="the dashboard extra is not installed")
pytest.importorskip("plotly", reason="the dashboard extra is not installed")

from streamlit.testing import v1 as testing

from retrograd.dashboard.arrays import ArrayFile, Unreadable
from retrograd.dashboard.explained import explained_games, read_game
from retrograd.dashboard.folder import OutputFolder
from retrograd.dashboard.overlay import enlarge, lay_over, stretch

LENGTH, ACTIONS, ATOMS = 9, 3, 5
NASTY = "<img src=x onerror=alert(1)>"


def page(folder: str) -> None:
    from retrograd.dashboard import context
    from retrograd.dashboard.views import agent_view

    seen = context.look(folder)
    if seen is not None:
        agent_view.show(seen)


def draw(folder):
    return testing.AppTest.from_function(page, args=(str(folder),), default_timeout=60).run()


def arrays_of(kind):
    rng = np.random.default_rng(0)
    held = {
        "value": rng.normal(size=LENGTH),
        "reward": np.eye(LENGTH)[4],
        "return_to_come": np.full(LENGTH, np.nan if kind == "real" else 1.0),
        "action": rng.integers(0, ACTIONS, LENGTH),
    }
    if kind == "real":
        held["action"] = rng.normal(size=(LENGTH, 2)).astype(np.float32)
    elif kind == "policy":
        held["probability"] = np.full((LENGTH, ACTIONS), 1 / ACTIONS, np.float32)
    else:
        held["q"] = rng.normal(size=(LENGTH, ACTIONS)).astype(np.float32)
    if kind in ("c51", "quantiles"):
        places = np.broadcast_to(np.linspace(-1, 1, ATOMS), (LENGTH, ACTIONS, ATOMS)).astype(np.float32)
        held["places"] = places + rng.normal(size=places.shape) if kind == "quantiles" else places
        held["mass"] = np.full(places.shape, 1 / ATOMS, np.float32)
    return held


def make_game(root, run="one", name="step_000000100", kind="value", maps=True, pictures=True, **facts):
    folder = root / run / "explain" / name
    folder.mkdir(parents=True)
    (root / run / "train_log.csv").write_text("step,env_frames\n1,4\n")
    np.savez_compressed(folder / "game.npz", **arrays_of(kind))
    rng = np.random.default_rng(1)
    frames = {f"frame_{step:06d}": rng.integers(0, 256, (21, 16, 3)).astype(np.uint8) for step in range(LENGTH)}
    np.savez_compressed(folder / "frames.npz", **(frames if pictures else {}))
    steps = [0, 4, 8] if maps else []
    drawn = {f"perturbation_{step:06d}": rng.integers(0, 256, (12, 12)).astype(np.uint8) for step in steps}
    np.savez_compressed(folder / "saliency.npz", **drawn)
    edges = np.arange(13, dtype=np.float32)
    share = rng.random((12, 12)).astype(np.float32)
    background = {"background": np.zeros((12, 12), np.uint8)} if pictures else {}
    np.savez_compressed(folder / "visits.npz", share=share, x_edges=edges, y_edges=edges, **background)
    told = {
        "format": 1,
        "action_names": [] if kind == "real" else ["NOOP", NASTY, "LEFT"],
        "pictures": LENGTH if pictures else 0,
        "score": 3.0,
        "saliency": {"steps": steps, "largest": {"perturbation": [1.0, 0.5, 0.0]} if maps else {}},
        "visits": {"kind": "screen", "steps": 9, "x_label": "x", "y_label": NASTY},
        **facts,
    }
    (folder / "game.json").write_text(json.dumps(told))
    return folder


def run_of(root, name="one"):
    return OutputFolder(root).runs()[name]


@pytest.mark.parametrize(
    ("kind", "seen"),
    [("value", True), ("c51", True), ("quantiles", True), ("policy", False), ("real", False)],
)
def test_every_kind_of_game_is_drawn(tmp_path, kind, seen):
    make_game(tmp_path, kind=kind, maps=seen, pictures=seen)
    app = draw(tmp_path)
    assert not app.exception
    assert not app.warning
    assert any("draws no pictures" in caption.value for caption in app.caption) != seen
    charts = app.get("plotly_chart")
    assert len(charts) == 2 + (kind != "real") + (kind in ("c51", "quantiles"))


def test_the_slider_moves_the_step_and_only_its_own_map_is_shown(tmp_path):
    make_game(tmp_path)
    app = draw(tmp_path)
    game = read_game(run_of(tmp_path), "step_000000100")
    assert app.selectbox(key="agent_kind_one/step_000000100").options == ["none", "perturbation"]
    app.slider(key="agent_step_one/step_000000100").set_value(6).run()
    metrics = {metric.label: metric.value for metric in app.metric}
    assert metrics["Value"] == f"{game.value[6]:.3g}"
    assert metrics["Action"] == game.action_names[game.action[6]]
    assert any("there are those of 4 and 8" in caption.value for caption in app.caption)
    app.slider(key="agent_step_one/step_000000100").set_value(4).run()
    assert any("of step 4" in caption.value for caption in app.caption)
    app.selectbox(key="agent_kind_one/step_000000100").set_value("none").run()
    assert not any("of step 4" in caption.value for caption in app.caption)
    assert not app.exception


def test_without_data_the_page_says_which_command_makes_them(tmp_path):
    (tmp_path / "a run").mkdir()
    (tmp_path / "a run" / "train_log.csv").write_text("step,env_frames\n1,4\n")
    app = draw(tmp_path)
    assert "no explained game" in app.info[0].value
    assert app.code[0].value == f"retrograd explain '{tmp_path}/a run'"


def test_a_run_that_has_something_to_show_comes_first(tmp_path):
    make_game(tmp_path, "explained")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "train_log.csv").write_text("step,env_frames\n1,4\n")
    assert draw(tmp_path).selectbox(key="agent_run").value == "explained"


def test_games_are_listed_by_step_and_strangers_are_not(tmp_path):
    for name in ("step_000000900", "step_000000100_seed7", "step_000000100"):
        make_game(tmp_path, name=name)
    above = tmp_path / "one" / "explain"
    for stranger in (".tmp-step_1-99", "step_x", "..step_1", "step_1_seed"):
        (above / stranger).mkdir()
        (above / stranger / "game.json").write_text("{}")
    (above / "step_7").symlink_to(tmp_path)
    assert explained_games(run_of(tmp_path)) == {
        "step_000000100": "step 100",
        "step_000000100_seed7": "step 100 · seed 7",
        "step_000000900": "step 900",
    }


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    secret = make_game(tmp_path / "elsewhere")
    outputs = tmp_path / "outputs"
    folder = make_game(outputs)
    for name in ("frames.npz", "saliency.npz"):
        (folder / name).unlink()
        (folder / name).symlink_to(secret / name)
    game = read_game(run_of(outputs), folder.name)
    assert game.picture(0) is None
    assert game.map_of("perturbation", 4) is None
    assert not draw(outputs).exception


def npy(header: bytes, data: bytes = b"", version: bytes = b"\x01\x00") -> bytes:
    return b"\x93NUMPY" + version + len(header).to_bytes(2, "little") + header + data


def npz(path, **held):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in held.items():
            file.writestr(f"{name}.npy", data)


def pickled() -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.array([{"a": 1}], object), allow_pickle=True)  # what an attacker would send
    return stream.getvalue()


HOSTILE = {
    "a pickle": pickled(),
    "a promise of a terabyte": npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (137438953472,)}\n"),
    "a negative length": npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}\n", b"\0" * 8),
    "too little": npy(b"{'descr': '<f8', 'fortran_order': False, 'shape': (9,)}\n", b"\0" * 8),
    "objects without a pickle": npy(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,)}\n", b"\0" * 8),
    "code in the header": npy(b"__import__('os').system('true')\n"),
    "a header without end": npy(b"[" * 3000),
    "another version": npy(b"{}", version=b"\x09\x00"),
    "nothing": b"",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_array_is_refused(tmp_path, name):
    npz(tmp_path / "game.npz", value=HOSTILE[name])
    with pytest.raises(Unreadable):
        ArrayFile(tmp_path / "game.npz").read("value", (None,))


def test_an_array_that_unfolds_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("retrograd.dashboard.arrays.MOST_BYTES", 10_000)
    npz(
        tmp_path / "game.npz",
        value=npy(b"{'descr': '|u1', 'fortran_order': False, 'shape': (90000,)}\n", bytes(90_000)),
    )
    with pytest.raises(Unreadable):
        ArrayFile(tmp_path / "game.npz").read("value", (None,))


@pytest.mark.parametrize("file", ["game.json", "game.npz", "frames.npz", "saliency.npz", "visits.npz"])
@pytest.mark.parametrize("content", [b"", b"\x00\xff nonsense", b"[1, 2]", b"[" * 100_000, b"PK\x05\x06" + b"\0" * 18])
def test_a_broken_file_is_said_to_be_broken(tmp_path, file, content):
    folder = make_game(tmp_path)
    (folder / file).write_bytes(content)

    def look():
        game = read_game(run_of(tmp_path), folder.name)
        game.picture(0)
        game.map_of("perturbation", 0)
        if game.visited is None:
            raise Unreadable("the heatmap is left out")

    with pytest.raises(Unreadable):
        look()


@pytest.mark.parametrize("file", ["game.json", "game.npz", "frames.npz", "saliency.npz", "visits.npz"])
def test_a_broken_file_gets_a_word(tmp_path, file):
    folder = make_game(tmp_path)
    (folder / file).write_bytes(b"\x00\xff nonsense")
    app = draw(tmp_path)
    assert not app.exception
    said = [*(warning.value for warning in app.warning), *(caption.value for caption in app.caption)]
    assert any("cannot be shown" in words or "cannot be read" in words for words in said)


@pytest.mark.parametrize(
    "facts",
    [
        {"saliency": {"steps": [4, 0, 8], "largest": {}}},
        {"saliency": {"steps": ["x"], "largest": {}}},
        {"saliency": {"steps": [0, 4], "largest": {"perturbation": [1.0]}}},
        {"saliency": {"steps": [0, 4, 8], "largest": [1]}},
        {"saliency": {"steps": [10**30], "largest": {"perturbation": [1.0]}}},
        {"action_names": ["one"]},
        {"action_names": "NOOP"},
    ],
    ids=str,
)
def test_a_description_that_does_not_fit_is_refused(tmp_path, facts):
    make_game(tmp_path, **facts)
    with pytest.raises(Unreadable):
        read_game(run_of(tmp_path), "step_000000100")


@pytest.mark.parametrize(
    "facts",
    [
        {"saliency": None},
        {"saliency": {"steps": [0, 4, 8], "largest": {"../../x": [1, 1, 1], "perturbation": [None, 1, 1]}}},
        {"visits": 3},
        {"pictures": "many"},
        {"pictures": 10**9},
        {"pictures": -3},
    ],
    ids=str,
)
def test_odd_facts_are_left_out(tmp_path, facts):
    make_game(tmp_path, **facts)
    game = read_game(run_of(tmp_path), "step_000000100")
    assert set(game.largest) <= {"perturbation"}
    assert game.pictures <= LENGTH
    assert all(np.isfinite(sizes).all() for sizes in game.largest.values())


@pytest.mark.parametrize("facts", [{"score": NASTY, "saliency": None}, {"score": [1], "visits": 3, "pictures": "many"}])
def test_odd_facts_do_not_reach_the_page(tmp_path, facts):
    make_game(tmp_path, **facts)
    app = draw(tmp_path)
    assert not app.exception
    assert not app.warning
    assert NASTY not in "".join(metric.value for metric in app.metric if metric.label == "Score")


def test_a_map_is_stretched_over_the_picture():
    shares = np.zeros((4, 4), np.float32)
    shares[2, 1] = 1.0
    wide = stretch(shares, 40, 80)
    assert wide.shape == (40, 80)
    row, column = divmod(int(wide.argmax()), 80)
    assert (row // 10, column // 20) == (2, 1)
    picture = np.full((40, 80, 3), 100, np.uint8)
    assert np.array_equal(lay_over(picture, shares, 0.0), picture)
    changed = np.abs(lay_over(picture, shares, 1.0).astype(int) - 100).max(axis=2) > 30
    assert changed[25, 30]
    assert not changed[:15].any()
    assert enlarge(picture[:10, :10]).shape == (420, 420, 3)
