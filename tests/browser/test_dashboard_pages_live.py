"""Every page of the dashboard in a real browser over real runs: it opens, and its controls act (REQ EXP-5)."""

from __future__ import annotations

import numpy as np
import pytest
from driving import PAGES

pytestmark = [pytest.mark.browser, pytest.mark.timeout(900)]

SWEEP = "sweeps/two_agents"


@pytest.mark.parametrize("path", PAGES)
def test_a_page_opens(dashboard, look, path):
    visit = look(dashboard)
    visit.open(path)
    visit.wait(lambda: visit.charts() or visit.tables(), "neither a chart nor a table")
    assert visit.exceptions() == []


def test_the_menu_leads_to_every_page(dashboard, look):
    visit = look(dashboard)
    visit.open()
    for title in [*PAGES.values(), "Overview"]:
        visit.turn_to(title)
        assert visit.exceptions() == []


def open_curves(visit, path="curves"):
    visit.open(path)
    visit.wait(lambda: visit.charts() and visit.chart()["lines"], "no curve")
    return visit.chart()


def test_another_figure_is_drawn(dashboard, look):
    visit = look(dashboard)
    before = open_curves(visit)
    assert before["y_title"] == "mean return of an evaluation (points)"
    visit.choose("Figure", "loss")
    visit.wait(lambda: visit.chart()["y_title"] == "loss", "the loss is not drawn")
    assert visit.chart()["lines"][0]["y"] != before["lines"][0]["y"]


def test_smoothing_smooths(dashboard, look):
    visit = look(dashboard)
    open_curves(visit)
    visit.choose("Figure", "episode_return")
    visit.wait(lambda: visit.chart()["y_title"].startswith("return of a game"), "the figure is not drawn")
    rough = visit.chart()["lines"][0]
    visit.page.get_by_role("slider").press("End")
    visit.wait(lambda: visit.chart()["lines"][0]["y"] != rough["y"], "smoothing changes nothing")
    smooth = visit.chart()["lines"][0]
    assert smooth["x"] == rough["x"]
    assert np.abs(np.diff(smooth["y"])).mean() < 0.5 * np.abs(np.diff(rough["y"])).mean()


def test_the_x_axis_can_be_chosen(dashboard, look):
    visit = look(dashboard)
    frames = open_curves(visit)
    assert frames["x_title"] == "emulator frames"
    for title in ("agent steps", "hours of training"):
        visit.choose("Against", title)
        visit.wait(lambda title=title: visit.chart()["x_title"] == title, f"not drawn against {title}")
    assert max(visit.chart()["lines"][0]["x"]) < 1 < max(frames["lines"][0]["x"])  # hours of a run of seconds


def test_seeds_become_one_line(dashboard, look):
    visit = look(dashboard)
    open_curves(visit)
    names = [line["name"] for line in visit.chart()["lines"]]
    visit.switch("Seeds together")
    visit.wait(lambda: [line["name"] for line in visit.chart()["lines"]] != names, "still a line a run")
    shown = [line["name"] for line in visit.chart()["lines"] if line["shown"]]
    assert any("2 seeds: mean and range" in name for name in shown)


def test_the_overview_is_filtered(dashboard, look):
    visit = look(dashboard)
    visit.open()
    visit.wait(lambda: visit.tables() and visit.tables()[0]["rows"] == 5, "not all runs are listed")
    search = visit.page.get_by_test_id("stTextInput").locator("input")
    search.fill("catch")
    search.press("Enter")
    visit.wait(lambda: visit.tables()[0]["rows"] == 1, "the search filters nothing")
    search.fill("")
    search.press("Enter")
    visit.wait(lambda: visit.tables()[0]["rows"] == 5, "the runs do not come back")
    visit.add("Agent", "ppo")
    visit.wait(lambda: visit.tables()[0]["rows"] == 2, "the agent filters nothing")


def test_the_overview_is_sorted_and_stays_so(dashboard, look):
    visit = look(dashboard)
    visit.open()
    visit.wait(lambda: visit.tables() and visit.tables()[0]["rows"] == 5, "not all runs are listed")

    def names():
        return [row[0] for row in visit.tables()[0]["cells"]]

    for click in range(2):
        visit.sort()
        order = sorted(names(), reverse=bool(click))
        visit.wait(lambda order=order: names() == order, "not sorted by name")
    visit.page.wait_for_timeout(6000)  # the page has drawn itself anew meanwhile
    assert names() == order


def test_config_diff_shows_differences_or_all(dashboard, look):
    visit = look(dashboard)
    visit.open("config-diff")
    visit.choose("Run A", f"{SWEEP}/runs/000_dqn_seed0")
    visit.choose("Run B", f"{SWEEP}/runs/003_ppo_seed1")
    visit.wait(lambda: visit.tables() and ["seed", "0", "1"] in visit.tables()[0]["cells"], "no table")
    few = visit.tables()[0]
    assert all(first != second for _, first, second in few["cells"])
    visit.switch("Only differences")
    visit.wait(lambda: visit.tables()[0]["rows"] > few["rows"], "not all settings are shown")
    assert ["●", "seed", "0", "1"] in visit.tables()[0]["cells"]
    assert {row[0] for row in visit.tables()[0]["cells"]} == {"", "●"}
    assert f"{few['rows']} of {visit.tables()[0]['rows']} entries differ" in visit.text()


def test_what_a_variant_brings(dashboard, look):
    visit = look(dashboard)
    visit.open("ablations")
    visit.wait(lambda: len(visit.charts()) == 2, "bars and curves are missing")
    bars, curves = visit.charts()
    assert {line["y"][0] for line in bars["lines"]} == {"dqn", "ppo"}
    assert [line["x"][0] == 0 for line in bars["lines"]] == [True, False]  # the first is what is compared with
    assert sum(line["shown"] for line in curves["lines"]) == 2
    visit.choose("Compared with", "ppo")
    visit.wait(lambda: visit.chart()["lines"][1]["x"][0] == 0, "the other variant is not compared with")


def test_a_game_can_be_chosen(dashboard, look):
    visit = look(dashboard)
    visit.open("games")
    visit.choose("Game", "cartpole")
    visit.wait(lambda: visit.tables()[0]["rows"] == 4, "not the runs of the game")
    visit.choose("Game", "catch_screen")
    visit.wait(lambda: visit.tables()[0]["rows"] == 1, "not the runs of the game")


PLAY = "() => { const video = document.querySelector('video'); video.muted = true; return video.play(); }"
TIME = "() => document.querySelector('video').currentTime"


def open_video(visit, run="catch_dqn"):
    visit.open("videos")
    visit.choose("Run A", run)
    visit.page.wait_for_function("() => document.querySelector('video')?.readyState >= 2")


def test_a_video_plays(dashboard, look, record_property):
    visit = look(dashboard)
    open_video(visit)
    visit.page.evaluate(PLAY)
    visit.page.wait_for_function(f"() => ({TIME})() > 0")
    record_property("figure", f"currentTime is {visit.page.evaluate(TIME):.2f} s after play()")


def test_a_refresh_does_not_rewind_a_video(dashboard, look):
    visit = look(dashboard)
    open_video(visit)
    visit.page.evaluate("() => { document.querySelector('video').currentTime = 0.1; }")
    visit.page.wait_for_timeout(6000)
    assert visit.page.evaluate(TIME) == pytest.approx(0.1, abs=0.01)


def test_one_scrubs_through_the_checkpoints(dashboard, look):
    visit = look(dashboard)
    open_video(visit)
    steps = visit.page.get_by_test_id("stMetricValue").nth(1)
    visit.wait(lambda: steps.inner_text() == "1,000", "the newest checkpoint is not shown at first")
    visit.page.get_by_test_id("stSlider").get_by_role("slider").press("ArrowLeft")
    visit.wait(lambda: steps.inner_text() == "500", "the checkpoint stays the same")
    visit.wait(lambda: visit.page.locator("video").count() == 1, "more than one video")
    assert visit.exceptions() == []


BOXES = "() => [...document.querySelectorAll('video')].map(video => video.getBoundingClientRect().toJSON())"


def test_two_videos_side_by_side(dashboard, look):
    visit = look(dashboard)
    open_video(visit)
    visit.switch("Two side by side")

    def apart():
        boxes = visit.page.evaluate(BOXES)  # at one moment: while the page is drawn anew videos come and go
        return len(boxes) == 2 and boxes[0]["right"] <= boxes[1]["left"]

    visit.wait(apart, "the videos are not side by side")
    assert visit.exceptions() == []


def test_the_agent_view_follows_the_step(dashboard, look):
    visit = look(dashboard)
    visit.open("agent-view")

    def marker():
        values = next((chart for chart in visit.charts() if chart["x_title"] == "step of the game"), {"lines": []})
        return next((line["x"] for line in values["lines"] if line["name"] == "this step"), None)

    visit.wait(lambda: marker() == [0], "no curve of values")
    slider = visit.page.get_by_test_id("stSlider").filter(has_text="Step of the game")
    slider.get_by_role("slider").press("ArrowRight")
    visit.wait(lambda: marker() == [1], "the marker does not move with the step")
    assert visit.exceptions() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_follows_light_and_dark(dashboard, look, scheme):
    visit = look(dashboard, color_scheme=scheme)
    visit.open("curves")
    ground = visit.page.evaluate("() => getComputedStyle(document.querySelector('.stApp')).backgroundColor")
    brightness = sum(int(part) for part in ground[ground.index("(") + 1 : -1].split(",")[:3]) / 3
    assert brightness > 200 if scheme == "light" else brightness < 60


def test_nothing_is_cut_at_laptop_width(dashboard, look):
    visit = look(dashboard)
    for path in PAGES:
        visit.open(path)
        wide = visit.page.evaluate("() => document.querySelector('[data-testid=\"stMain\"]').scrollWidth")
        room = visit.page.evaluate("() => document.querySelector('[data-testid=\"stMain\"]').clientWidth")
        assert wide <= room, path
