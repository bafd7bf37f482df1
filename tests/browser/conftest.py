"""Real run folders from short trainings, a dashboard that serves them, and a browser that looks at them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import driving
import pytest

SHORT = [
    "training.log_every_steps=100", "eval.light_episodes=2", "eval.full_episodes=2", "eval.num_envs=2",
    "training.num_envs=4", "hardware.torch_threads=1", "hardware.env_threads=1",
]  # fmt: skip
CARTPOLE = [
    "env=cartpole", "training.total_env_frames=3000", "training.light_eval_every_frames=500",
    "training.full_eval_every_frames=1500", "training.warmup_random_steps=500",
]  # fmt: skip
CATCH = [
    "env=catch_screen", "training.total_env_frames=4000", "training.light_eval_every_frames=1000",
    "training.full_eval_every_frames=2000", "training.warmup_random_steps=400", "replay.capacity=2000",
]  # fmt: skip

EXPLAIN = ["--steps", "9", "--every", "3", "--visit-steps", "50", "--saliency", "gradient", "--no-plots", "--no-video"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where there is no browser each test that needs one says so."""
    missing = [name for name in ("playwright", "streamlit", "plotly") if importlib.util.find_spec(name) is None]
    reason = f'needs {" and ".join(missing)}: pip install "retrograd[dashboard,browser]"' if missing else ""
    if not reason and driving.find_chromium() is None:
        reason = "no Chromium on this machine: apt-get install chromium"
    for item in items:
        if reason and item.get_closest_marker("browser"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two agents on CartPole with two seeds each, as a sweep, and DQN on a game of pixels, with videos."""
    kept = os.environ.get("RETROGRAD_BROWSER_RUNS")  # who works on the pages need not train for every look
    root = Path(kept) if kept else tmp_path_factory.mktemp("browser") / "outputs"
    make_runs(root)
    return root


def make_runs(root: Path) -> None:
    from retrograd import cli

    jobs = str(min(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1))
    sweep = ["sweep", "agent=dqn,ppo", "seed=0,1", "--name", "two_agents", "--jobs", jobs, *CARTPOLE, *SHORT]
    if not (root / "sweeps").exists():
        assert cli.main([*sweep, f"output_dir={root}"]) == 0
    if not (root / "catch_dqn").exists():
        assert cli.main(["train", *CATCH, *SHORT, f"output_dir={root}", "run_name=catch_dqn"]) == 0
        assert cli.main(["explain", str(root / "catch_dqn"), *EXPLAIN]) == 0


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with driving.chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def dashboard(trained: Path) -> Iterator[str]:
    """The address of a dashboard over the trained runs; nobody changes those."""
    with driving.serve(trained) as url:
        yield url


@pytest.fixture
def serve() -> Iterator[Callable[[Path], str]]:
    """Dashboards over folders of a test's own."""
    with contextlib.ExitStack() as servers:
        yield lambda folder: servers.enter_context(driving.serve(folder))


@pytest.fixture
def look(chromium: Any) -> Iterator[Callable[..., driving.Visit]]:
    """A new tab on a dashboard; at the end no dialog, no script error and no stranger asked."""
    visits: list[driving.Visit] = []

    def visit(url: str, **options: Any) -> driving.Visit:
        page = chromium.new_page(viewport=driving.LAPTOP, **options)
        visits.append(driving.Visit(page, url))
        return visits[-1]

    yield visit
    for one in visits:
        one.page.close()
        assert not one.dialogs
        assert not one.errors
        assert not one.strangers


@pytest.fixture
def copy_of(trained: Path, tmp_path: Path) -> Callable[[str], Path]:
    """A copy of one of the trained runs, in a folder of its own, that a test may change."""

    def copy(name: str) -> Path:
        target = tmp_path / "outputs" / Path(name).name
        shutil.copytree(trained / name, target, symlinks=True)
        return target

    return copy
