"""Two hundred runs with logs of ten thousand rows: opened at once, pages changed at once (REQ EXP-5).

The promise is 3 seconds to open a page and 1 second to change to another, with two cores for browser and server. Where
other programs leave less the limits grow in proportion; where they leave hardly anything the test says so and skips.
"""

from __future__ import annotations

import shutil
import time

import numpy as np
import pytest
from driving import PAGES
from machine import measure

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

RUNS, ROWS = 200, 10_000
OPEN_SECONDS, CHANGE_SECONDS = 3.0, 1.0
READING_SECONDS = 2.0
AGENTS = ("dqn", "ppo", "rainbow", "c51")
COLUMNS = {
    "train": "step,env_frames,episode_number,episode_return,episode_length",
    "update": "step,env_frames,epsilon,loss,mean_q,max_q,grad_norm,return_mean_100,steps_per_second,wall_seconds",
    "eval": "step,env_frames,eval_type,eval_mean_return,eval_std_return,eval_min_return,eval_max_return,"
    "eval_median_return,eval_mean_length,eval_human_normalized",
}


def write_log(path, columns, rng):
    names = columns.split(",")
    steps = np.arange(1, ROWS + 1) * 100
    values = {name: np.round(rng.normal(size=ROWS).cumsum(), 3) for name in names}
    values |= {"step": steps, "env_frames": 4 * steps, "wall_seconds": steps / 500}
    values |= {"eval_type": np.full(ROWS, "light")}
    rows = zip(*(values[name].astype(str) for name in names), strict=True)
    path.write_text(columns + "\n" + "\n".join(",".join(row) for row in rows) + "\n")


@pytest.fixture(scope="module")
def two_hundred(trained, tmp_path_factory):
    """Four agents, fifty seeds each, with the config of a real run."""
    root = tmp_path_factory.mktemp("many")
    config = (trained / "catch_dqn" / ".hydra" / "config.yaml").read_text()
    rng = np.random.default_rng(0)
    for kind, columns in COLUMNS.items():
        write_log(root / f"{kind}_log.csv", columns, rng)
    for number in range(RUNS):
        agent = AGENTS[number % len(AGENTS)]
        run = root / "outputs" / f"{agent}_{number:03d}"
        (run / ".hydra").mkdir(parents=True)
        mine = config.replace("seed: 42", f"seed: {number}").replace("name: dqn", f"name: {agent}")
        (run / ".hydra" / "config.yaml").write_text(mine)
        for kind in COLUMNS:
            shutil.copy(root / f"{kind}_log.csv", run)
    return root / "outputs"


TABLE, LINE = '[data-testid="stDataFrame"] canvas tbody tr', ".js-plotly-plot .trace"
LOADED = "() => performance.getEntriesByType('resource').some(file => file.name.includes('SyntaxHighlighter'))"


def walk(visit):
    """A visitor opens the dashboard and goes through all pages twice: what was done, the promise, how long it took.

    The browser is running already, as a reader's is, and the visitor looks at the first page before the next.
    """
    visit.page.remove_listener("request", visit.note_request)  # hundreds of messages, which cost what they measure
    visit.page.goto("data:text/html,<p>another page</p>")
    visit.page.screenshot()

    def open_overview():
        visit.open()
        visit.wait(lambda: visit.tables() and visit.tables()[0]["rows"] == RUNS, "not all runs are listed")

    taken = [("opening the overview", OPEN_SECONDS, measure(open_overview))]
    # charts come with megabytes of code, for which the page asks while its reader looks at the table
    loading = measure(lambda: visit.page.wait_for_function(LOADED))
    taken += [("loading what the other pages need", OPEN_SECONDS, loading)]
    time.sleep(READING_SECONDS)
    for round_ in ("first", "second"):
        for title in [*list(PAGES.values())[1:], "Overview"]:
            timing = measure(lambda title=title: change(visit, title))
            taken.append((f"{round_} change to {title}", CHANGE_SECONDS, timing))
            assert visit.exceptions() == []
    taken += [("opening the overview again", OPEN_SECONDS, measure(open_overview))]
    return taken


def tell(taken):
    return [f"{what}: {timing} (promised: {promised:.0f} s)" for what, promised, timing in taken]


def test_two_hundred_runs_are_shown_on_every_page(two_hundred, serve, look, record_property):
    for line in tell(walk(look(serve(two_hundred)))):
        record_property("figure", line)


@pytest.mark.nightly  # seconds by the clock: for a machine that has nothing else to do
def test_two_hundred_runs_are_quick_to_look_at(two_hundred, serve, look, record_property):
    taken = walk(look(serve(two_hundred)))
    told = tell(taken)
    for line in told:
        record_property("figure", line)
    judged = [one for one in taken if one[2].says_something]
    if len(judged) < len(taken) / 2:
        pytest.skip("other programs keep this machine too busy: " + "; ".join(told))
    late = [what for what, promised, timing in judged if timing.seconds > timing.limit(promised)]
    assert not late, f"{RUNS} runs of {ROWS:,} rows; too slow are {', '.join(late)}\n" + "\n".join(told)


def change(visit, title):
    visit.turn_to(title)
    if title not in ("Video Player", "Agent view"):  # these runs have neither videos nor explained games: it is said
        drawn = TABLE if title in ("Overview", "Config Diff") else LINE  # looked for, not read: reading takes its time
        visit.page.wait_for_selector(drawn, state="attached")
