"""Folders as they come, in a real browser: growing, empty, missing, broken, hostile (REQ EXP-5)."""

from __future__ import annotations

import json
import shutil

import pytest
from driving import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

HOSTILE = (
    "<script>window.injected = 1; alert(1)<_script>",
    '<img src=x onerror="window.injected = 2; alert(2)">',
    '"><svg onload=alert(3)>',
    "![picture](http:127.0.0.1:1)",
    "[link](javascript:alert(4))",
    "$\\href{javascript:alert(5)}{x}$ {{7*7}} :red[x]",
    '<a href="javascript:alert(6)">x<_a>',
)


def grow(run, name, rows):
    """Write on, as a run that goes on does: first half a line, then the rest."""
    path = run / f"{name}_log.csv"
    lines = path.read_text().splitlines()
    step, frames = (int(value) for value in lines[-1].split(",")[:2])
    with path.open("a") as file:
        for number in range(1, rows + 1):
            line = ",".join([str(step + 10 * number), str(frames + 10 * number), *lines[-1].split(",")[2:]])
            file.write(line[:8])
            file.flush()
            file.write(line[8:] + "\n")


def test_new_points_appear_without_a_reload(copy_of, serve, look, record_property):
    run = copy_of("catch_dqn")
    visit = look(serve(run.parent))
    visit.open("curves")
    visit.wait(lambda: visit.charts() and visit.chart()["lines"], "no curve")
    visit.page.evaluate("() => { window.stillHere = true; }")
    before = len(visit.chart()["lines"][0]["x"])
    grow(run, "eval", 3)
    visit.wait(lambda: len(visit.chart()["lines"][0]["x"]) == before + 3, "the curve does not grow")
    assert visit.page.evaluate("() => window.stillHere === true")
    record_property("figure", f"{before} points became {before + 3} in the open page")


def test_a_new_run_appears_without_a_reload(copy_of, serve, look):
    run = copy_of("catch_dqn")
    visit = look(serve(run.parent))
    visit.open()
    visit.wait(lambda: visit.tables() and visit.tables()[0]["rows"] == 1, "the run is not listed")
    shutil.copytree(run, run.parent / "second", symlinks=True)
    visit.wait(lambda: visit.tables()[0]["rows"] == 2, "the second run does not appear")


@pytest.mark.parametrize("there", [True, False], ids=["empty", "missing"])
def test_a_folder_without_runs(tmp_path, serve, look, there):
    folder = tmp_path if there else tmp_path / "missing"
    url = serve(folder)
    visit = look(url)
    for path in PAGES:
        visit.open(path)
        visit.wait(lambda: "retrograd train" in visit.text(), "nobody says what to do")
        assert visit.exceptions() == []


@pytest.fixture
def broken(copy_of):
    """Copies of a real run, each broken in its own way."""
    first = copy_of("catch_dqn")
    root = first.parent

    def copy(name):
        return shutil.copytree(first, root / name, symlinks=True)

    half = copy("half_line")
    for log in half.glob("*_log.csv"):
        log.write_bytes(log.read_bytes()[:-7])
    (copy("no_config") / ".hydra" / "config.yaml").unlink()
    (copy("bad_yaml") / ".hydra" / "config.yaml").write_text("env: [1, 2\nagent: {")
    (copy("odd_config") / ".hydra" / "config.yaml").write_text(
        "env: {name: [1, 2]}\nagent: 7\nseed: x\ntraining: {total_env_frames: many}\nenv_protocol: {name: {a: b}}\n"
    )
    (copy("bomb") / ".hydra" / "config.yaml").write_text("a: &a [1, 1]\nb: &b [*a, *a]\nagent: {name: *b}\n")
    (copy("bad_catalog") / "checkpoints" / "catalog.json").write_text('[{"step": 1, "eval_score": "high"}, 3, {"st')
    odd = copy("odd_catalog") / "checkpoints" / "catalog.json"
    listed = json.loads(odd.read_text())
    odd.write_text(json.dumps([{**entry, "eval_score": "high", "timestamp": None} for entry in listed]))
    (copy("bad_summary") / "summary.json").write_text("{")
    for name in ("no_config", "bad_yaml"):
        (root / name / "summary.json").unlink()  # a run with a summary is done, whatever else it lacks
    (copy("binary") / "update_log.csv").write_bytes(bytes(range(256)) * 40)
    (copy("twice") / "update_log.csv").write_text("step,env_frames,loss,loss\n1,4,0.5,0.6\n2,8,0.4,0.5\n")
    (copy("no_steps") / "eval_log.csv").write_text("eval_mean_return\n1\n2\n")
    (copy("empty_logs") / "eval_log.csv").write_text("")
    for log in copy("no_logs").glob("*_log.csv"):
        log.unlink()
    return root


def test_broken_runs_break_no_page(broken, serve, look):
    visit = look(serve(broken))
    visit.open()
    count = len(list(broken.iterdir()))
    visit.wait(lambda: visit.tables() and visit.tables()[0]["rows"] == count, "not all runs are listed")
    texts = {row[0]: " ".join(row) for row in visit.tables()[0]["cells"]}
    assert "broken" in texts["no_config"]
    assert "broken" in texts["bad_yaml"]
    names = sorted(path.name for path in broken.iterdir())
    for path, label in (
        ("curves", None),
        ("games", None),
        ("ablations", None),
        ("agent-view", None),
        ("videos", "Run A"),
    ):
        visit.open(path)
        assert visit.exceptions() == [], path
        for name in names if label else ():
            visit.choose(label, name)
            visit.settle()
            assert visit.exceptions() == [], (path, name)
    visit.open("config-diff")
    for name in names:
        visit.choose("Run B", name)
        visit.settle()
        assert visit.exceptions() == [], name


@pytest.fixture
def hostile(copy_of):
    """Runs whose names, settings, columns and dates are scripts."""
    first = copy_of("catch_dqn")
    root = first.parent
    games = [*HOSTILE, HOSTILE[3]]  # two runs of one game, which can be compared
    for number, (name, game) in enumerate(zip([*HOSTILE, f"{HOSTILE[3]} again"], games, strict=True)):
        run = shutil.copytree(first, root / name, symlinks=True)
        word, game_word = (json.dumps(text.replace("_", "/")) for text in (name, game))
        (run / ".hydra" / "config.yaml").write_text(
            f"seed: {number}\nenv: {{name: {game_word}}}\nagent: {{name: {word}, {word}: {word}}}\n"
            f"env_protocol: {{name: {game_word}}}\n"
        )
        log = run / "eval_log.csv"
        log.write_text(log.read_text().replace("eval_std_return", name.replace(",", ";").replace("_", "/")))
        catalog = run / "checkpoints" / "catalog.json"
        entries = [{**entry, "timestamp": name.replace("_", "/")} for entry in json.loads(catalog.read_text())]
        catalog.write_text(json.dumps(entries))
        (run / "versions.json").write_text(json.dumps({name: name}))
    shutil.rmtree(first)
    return root


def test_scripts_in_names_stay_text(hostile, serve, look):
    visit = look(serve(hostile))
    marks = '() => [window.injected, document.querySelectorAll(\'img[src="x"], [onload], [onerror], '
    marks += 'a[href^="javascript"], .stMarkdown script\').length]'
    for path in PAGES:
        visit.open(path)
        visit.wait(lambda: visit.charts() or visit.tables() or visit.page.locator("video").count(), "nothing drawn")
        for label in {"curves": ["Figure"], "videos": ["Run A"], "games": ["Game"], "config-diff": ["Run A"]}.get(
            path, []
        ):
            box = visit.page.get_by_test_id("stSelectbox").filter(has_text=label).first
            for number in range(len(HOSTILE)):
                box.locator("input").click()
                visit.page.get_by_role("option").nth(number).click()
                visit.settle()
        assert visit.exceptions() == []
        assert visit.page.evaluate(marks) == [None, 0]
    assert not visit.dialogs


def test_no_address_leads_out_of_the_folder(copy_of, tmp_path, serve, look):
    run = copy_of("catch_dqn")
    (tmp_path / "secret.txt").write_text("the secret word")
    (run.parent / "linked").symlink_to(tmp_path)
    url = serve(run.parent)
    visit = look(url)
    visit.open()
    for place in ("", "media/", "static/", "app/static/", "component/", "_stcore/", "curves/"):
        for way in ("../secret.txt", "..%2fsecret.txt", "%2e%2e/secret.txt", "..%252fsecret.txt", "..%c0%afsecret.txt",
                    "linked/secret.txt", "catch_dqn/train_log.csv", str(tmp_path / "secret.txt")):  # fmt: skip
            body = visit.page.request.get(f"{url}/{place}{way}").text()
            assert "the secret word" not in body
            assert "episode_return" not in body
