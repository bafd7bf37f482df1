"""Every page of the dashboard draws, without a browser, whatever the folder holds."""

from __future__ import annotations

import json
import socket

import pytest

testing = pytest.importorskip("streamlit.testing.v1", reason="the dashboard extra is not installed")
pytest.importorskip("plotly", reason="the dashboard extra is not installed")

PAGES = ("overview", "curves", "videos", "agent_view", "games", "ablations", "config_diff")
CONFIG = "seed: {seed}\ntrack: custom\nenv: {{name: pong}}\nagent: {{name: {agent}}}\n"
CONFIG += "env_protocol: {{name: {protocol}, repeat_action_probability: {sticky}}}\n"
CONFIG += "training: {{total_env_frames: 4000}}\n"
STICKY = {"paper_v4": 0.0, "modern_v5_sticky": 0.25}
NASTY = "<script>alert(1)</script>"


def page(folder: str, name: str) -> None:
    import importlib

    from retrograd.dashboard import context

    seen = context.look(folder)
    if seen is not None:
        importlib.import_module(f"retrograd.dashboard.views.{name}").show(seen)


def draw(folder, name):
    return testing.AppTest.from_function(page, args=(str(folder), name), default_timeout=60).run()


def make_run(root, name, *, game="pong", agent="dqn", protocol="paper_v4", seed=0, score=0.0, evaluated=True):
    run = root / name
    (run / ".hydra").mkdir(parents=True)
    config = CONFIG.format(seed=seed, agent=agent, protocol=protocol, sticky=STICKY[protocol])
    (run / ".hydra" / "config.yaml").write_text(config.replace("name: pong", f"name: {game}"))
    rows = "".join(f"{i * 10},{i * 40},0.5,100.0,{i}.0,{i - 20}\n" for i in range(1, 30))
    (run / "update_log.csv").write_text("step,env_frames,loss,steps_per_second,wall_seconds,return_mean_100\n" + rows)
    rows = "".join(f"{i * 10},{i * 40},light,{score + i - 26},0.5\n" for i in range(1, 30, 5))
    if evaluated:
        (run / "eval_log.csv").write_text("step,env_frames,eval_type,eval_mean_return,eval_human_normalized\n" + rows)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("outputs")
    for number, (agent, protocol) in enumerate(
        [("dqn", "paper_v4"), ("ppo", "paper_v4"), ("ppo", "modern_v5_sticky")] * 2
    ):
        make_run(root, f"{agent}_{number}", agent=agent, protocol=protocol, seed=number, score=6.0)
    (root / "broken").mkdir()
    (root / "broken" / "train_log.csv").write_bytes(b"\x00\xff,half a li")
    nasty = root / NASTY.replace("/", "_")
    (nasty / ".hydra").mkdir(parents=True)
    (nasty / ".hydra" / "config.yaml").write_text(
        CONFIG.format(seed=0, agent=f'"{NASTY}"', protocol="paper_v4", sticky=0.0)
    )
    return root


@pytest.mark.parametrize("name", PAGES)
def test_a_page_draws(runs, name):
    drawn = draw(runs, name)
    assert not drawn.exception


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("there", [True, False], ids=["empty", "missing"])
def test_a_folder_without_runs_gets_a_word(tmp_path, name, there):
    folder = tmp_path if there else tmp_path / "missing"
    drawn = draw(folder, name)
    assert not drawn.exception
    assert "retrograd train" in drawn.info[0].value


def test_filters_of_the_overview_act(runs):
    app = draw(runs, "overview")
    assert len(app.dataframe[0].value) == 8
    app.multiselect(key="overview_agent").set_value(["ppo"]).run()
    assert set(app.dataframe[0].value["agent"]) == {"ppo"}
    app.text_input(key="overview_text").set_value("ppo_1").run()
    assert app.dataframe[0].value["run"].tolist() == ["ppo_1"]


def test_protocols_are_marked_and_not_averaged_together(runs):
    app = draw(runs, "games")
    assert "2 protocols" in app.warning[0].value
    assert not any("IQM" in frame.value for frame in app.dataframe)  # no agent has three runs of one protocol


def test_a_figure_can_be_chosen_and_seeds_grouped(runs):
    app = draw(runs, "curves")
    app.multiselect(key="curves_runs").set_value(["ppo_1", "ppo_4"]).run()
    app.selectbox(key="curves_metric").set_value("loss").run()
    app.toggle(key="curves_group").set_value(True).run()
    assert not app.exception


def test_published_curves_are_offered_for_the_same_protocol_only(runs):
    app = draw(runs, "curves")
    app.multiselect(key="curves_runs").set_value(["ppo_1"]).run()
    app.toggle(key="curves_reference").set_value(True).run()
    labels = app.multiselect(key="curves_published").options
    assert labels
    assert all(label.startswith("pong · ") for label in labels)
    assert not any("Dopamine" in label for label in labels)  # made with sticky actions
    assert app.multiselect(key="curves_published").value[0].startswith("pong · PPO")  # the same algorithm first


def test_variants_are_compared_within_one_game_and_protocol(tmp_path):
    sweep = tmp_path / "sweeps" / "mine"
    for number, (agent, game) in enumerate((agent, game) for game in ("pong", "breakout") for agent in ("dqn", "ppo")):
        make_run(sweep / "runs", f"{agent}_{game}", agent=agent, game=game, score=10.0 * number)
    (sweep / "sweep.yaml").write_text("{}")
    app = draw(tmp_path, "ablations")
    for game, bars in (("pong", [0.0, 10.0]), ("breakout", [0.0, 10.0])):
        app.selectbox(key="ablation_task").set_value(game).run()
        app.selectbox(key="ablation_base").set_value("dqn").run()
        assert not app.exception
        drawn = json.loads(app.get("plotly_chart")[0].proto.spec)["data"]
        assert [(bar["y"], bar["x"]) for bar in drawn] == [
            ([name], [width]) for name, width in zip(("dqn", "ppo"), bars, strict=True)
        ]


def test_runs_without_evaluations_are_left_out_of_means_of_evaluations_and_named(tmp_path):
    for seed in range(4):
        make_run(tmp_path, f"dqn_{seed}", seed=seed, evaluated=seed < 3)
    app = draw(tmp_path, "games")
    (means,) = [frame.value for frame in app.dataframe if "IQM" in frame.value]
    assert means[["what", "runs", "IQM"]].to_numpy().tolist() == [["dqn", 3, 0.0]]
    assert any("no evaluation yet: dqn\\_3" in caption.value for caption in app.caption)
    make_run(tmp_path, "ppo", agent="ppo", evaluated=False)
    app = draw(tmp_path, "ablations")
    (caption,) = [caption.value for caption in app.caption if "no evaluation yet" in caption.value]
    assert {*caption.partition(": ")[2].split(", ")} == {"dqn\\_3", "ppo"}


def test_two_configs_differ_where_they_differ(runs):
    app = draw(runs, "config_diff")
    app.selectbox(key="diff_a").set_value("dqn_0").run()
    app.selectbox(key="diff_b").set_value("ppo_1").run()
    assert app.dataframe[0].value["key"].tolist() == ["seed", "agent.name"]
    app.toggle(key="diff_only").set_value(False).run()
    assert len(app.dataframe[0].value) > 2


def test_scripts_in_names_stay_text(runs):
    app = draw(runs, "videos")
    app.selectbox(key="videos_run_0").set_value(NASTY.replace("/", "_")).run()
    assert not app.exception
    assert "<script>" not in app.info[0].value.replace("\\<", "")


def test_the_browser_is_told_of_all_code_that_pages_need_later(runs):
    """A release of Streamlit that names its files otherwise is noticed here; the dashboard works all the same."""
    from retrograd.dashboard.preload import KINDS, code_addresses

    assert [address.split("/")[-1].split(".")[0] for address in code_addresses()] == list(KINDS)


def test_the_script_of_the_page_holds_nothing_of_the_runs(runs):
    from retrograd.dashboard import preload

    drawn = testing.AppTest.from_string("from retrograd.dashboard.preload import preload; preload()").run()
    (html,) = [element.proto for element in drawn.get("html")]
    assert html.unsafe_allow_javascript
    assert html.body == preload.script()
    assert len(html.body) < 5000, "it comes with every page"


def test_answers_are_not_held_back(monkeypatch):
    from retrograd.dashboard import serve

    monkeypatch.setattr(socket.socket, "listen", socket.socket.listen)  # put back afterwards
    serve._send_at_once()
    with socket.socket() as listening:  # as Streamlit makes it
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as taken:
            assert taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
