"""The dashboard in a headless Chromium: starting both, and reading what a page shows."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LAPTOP = {"width": 1280, "height": 800}
PAGES = {
    "": "Overview",
    "curves": "Training Curves",
    "videos": "Video Player",
    "agent-view": "Agent view",
    "games": "Game Comparison",
    "ablations": "Ablation Comparator",
    "config-diff": "Config Diff",
}
PATIENCE_SECONDS = 120.0  # machines that test are busy

CHARTS = """() => [...document.querySelectorAll('.js-plotly-plot')].filter(plot => plot._fullData).map(plot => ({
    x_title: plot.layout.xaxis?.title?.text, y_title: plot.layout.yaxis?.title?.text,
    lines: plot._fullData.map(line => ({
        name: line.name, shown: line.showlegend, x: Array.from(line.x ?? []), y: Array.from(line.y ?? [])}))}))"""
# a table is painted on a canvas; its words are there a second time for those who listen to them
TABLES = """() => [...document.querySelectorAll('[data-testid="stDataFrame"] canvas table')].map(table => ({
    rows: Number(table.getAttribute('aria-rowcount')) - 1,
    columns: [...table.querySelectorAll('th')].map(cell => cell.innerText),
    cells: [...table.querySelectorAll('tbody tr')].map(
        row => [...row.querySelectorAll('td')].map(cell => cell.innerText))}))"""


def find_chromium() -> str | None:
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """``retrograd dashboard FOLDER`` for as long as the block lasts; gives its address."""
    port = free_port()
    command = [sys.executable, "-m", "retrograd", "dashboard", str(folder), "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = subprocess.Popen(command, start_new_session=True, **quiet)
    try:
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: _answers(f"{url}/_stcore/health"), "the dashboard did not start")
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310  # our own server
            return bool(answer.status == 200)
    except OSError:
        return False


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=["--no-sandbox"], headless=True)
        try:
            yield browser
        finally:
            browser.close()


def wait_until(condition: Callable[[], Any], complaint: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """The first answer of ``condition`` that is true."""
    until = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < until, complaint
        time.sleep(0.05)


class Visit:
    """One tab that looks at one dashboard, and keeps account of what must not happen there."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.dialogs: list[str] = []
        self.errors: list[str] = []
        self.strangers: list[str] = []  # requests to anybody but this machine
        page.set_default_timeout(1000 * PATIENCE_SECONDS)
        page.on("dialog", self._note_dialog)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", self.note_request)

    def _note_dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def note_request(self, request: Any) -> None:
        if not request.url.startswith((self.url, self.url.replace("http", "ws", 1), "data:", "blob:")):
            self.strangers.append(request.url)

    def open(self, path: str = "") -> None:
        self.page.goto(f"{self.url}/{path}")
        self.settle(PAGES[path])

    def turn_to(self, title: str) -> None:
        """Another page by the menu, without loading anything anew."""
        self.page.get_by_test_id("stSidebarNavLink").filter(has_text=title).click()
        self.settle(title)

    def settle(self, title: str | None = None) -> None:
        """Wait until the page is drawn."""
        if title is not None:
            self.page.get_by_role("heading", name=title, exact=True, level=1).wait_for()
        app = '[data-testid="stApp"][data-test-script-state="notRunning"]'
        self.page.wait_for_selector(app, state="attached")
        self.page.wait_for_function("() => !document.querySelector('[data-testid=\"stSkeleton\"]')")

    def exceptions(self) -> list[str]:
        return list(self.page.get_by_test_id("stException").all_inner_texts())

    def text(self) -> str:
        return str(self.page.get_by_test_id("stMain").inner_text())

    def charts(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.page.evaluate(CHARTS)
        return found

    def chart(self) -> dict[str, Any]:
        """The first one, as soon as it has lines: while a page is drawn anew it may be gone for a moment."""
        found: dict[str, Any] = self.wait(lambda: [one for one in self.charts()[:1] if one["lines"]], "no chart")[0]
        return found

    def tables(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.page.evaluate(TABLES)
        return found

    def wait(self, condition: Callable[[], Any], complaint: str) -> Any:
        """As ``wait_until``, while the browser goes on with its own work.

        A page that is drawn anew may have no chart or table for a moment: what is not there yet is waited for.
        """
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                answer = condition()
            except IndexError:
                answer = None
            if answer:
                return answer
            assert time.monotonic() < until, complaint
            self.page.wait_for_timeout(50)

    def choose(self, label: str, option: str) -> None:
        """One option of a box with a list."""
        self._pick(self._box("stSelectbox", label).locator("input"), option)

    def add(self, label: str, option: str) -> None:
        """One more option of a box that takes several."""
        self._pick(self._box("stMultiSelect", label).locator("input"), option)
        self.page.keyboard.press("Escape")

    def _pick(self, box: Any, option: str) -> None:
        box.click()
        box.fill(option)  # long lists show only what is in sight
        self.page.get_by_role("option", name=option, exact=True).click()

    def clear(self, label: str) -> None:
        """No option of a box that takes several."""
        self._box("stMultiSelect", label).get_by_label("Clear all").click()

    def sort(self, table: int = 0) -> None:
        """A click on the head of a table's first column."""
        box = self.page.get_by_test_id("stDataFrame").nth(table).bounding_box()
        self.page.mouse.click(box["x"] + 30, box["y"] + 18)

    def switch(self, label: str) -> None:
        self._box("stCheckbox", label).locator("label").click()

    def _box(self, kind: str, label: str) -> Any:
        return self.page.get_by_test_id(kind).filter(has_text=label).first
