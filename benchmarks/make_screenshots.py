"""Take the pictures of docs/dashboard.md: every page at laptop width, light and dark, over real runs.

python benchmarks/make_screenshots.py                       trains for a few minutes first; or: make screenshots
python benchmarks/make_screenshots.py --keep FOLDER         keeps the runs, and uses those that are there
python benchmarks/make_screenshots.py --run outputs/pong    shows this trained run instead of a few minutes of Breakout
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "browser"))  # the browser tests drive the same pages

import driving  # noqa: E402

from retrograd import cli  # noqa: E402

IMAGES = ROOT / "docs" / "images"
LARGEST_BYTES = 250_000
DAY_SECONDS = 86_400
SHOWN = "trained_agent"  # the run of Video Player and Agent view

SWEEP = [
    "sweep", "--name", "ppo_epochs", "--jobs", "2", "agent=ppo", "agent.epochs=1,10", "seed=0,1,2", "env=cartpole",
    "agent.rollout_steps=32", "agent.clip_range=0.2", "preset.lr=0.001", "training.total_env_frames=20000",
    "training.light_eval_every_frames=2000", "training.full_eval_every_frames=null", "eval.light_episodes=8",
    "eval.full_episodes=8", "eval.record_video=false", "training.log_every_steps=200",
    "hardware.torch_threads=1",
]  # fmt: skip
BREAKOUT = [
    "train", "env=breakout", f"run_name={SHOWN}", "training.total_env_frames=8000", "replay.capacity=4000",
    "training.warmup_random_steps=800", "training.light_eval_every_frames=1000",
    "training.full_eval_every_frames=4000", "eval.light_episodes=2", "eval.full_episodes=2", "eval.num_envs=2",
    "training.log_every_steps=200", "hardware.torch_threads=1", "hardware.env_threads=1",
]  # fmt: skip

EXPLAIN = ["--steps", "240", "--every", "8", "--visit-steps", "400", "--no-plots", "--no-video"]


def make_runs(folder: Path, shown: Path | None) -> None:
    """A small sweep, a run with videos, and the logs of docs/results."""
    if not (folder / "sweeps").exists():
        assert cli.main([*SWEEP, f"output_dir={folder}"]) == 0
    if not (folder / SHOWN).exists():
        if shown is None:
            assert cli.main([*BREAKOUT, f"output_dir={folder}"]) == 0
        else:
            shutil.copytree(shown, folder / SHOWN, symlinks=True)
        assert cli.main(["explain", str(folder / SHOWN), *EXPLAIN]) == 0
    yesterday = time.time() - DAY_SECONDS  # logs that somebody has just checked out do not belong to a run going on
    for logs in sorted((ROOT / "docs" / "results" / "logs").iterdir()):
        shutil.copytree(logs, folder / logs.name, dirs_exist_ok=True)
        for file in (folder / logs.name).rglob("*"):
            os.utime(file, (yesterday, yesterday))


def overview(visit: driving.Visit) -> None:
    visit.open()
    visit.wait(visit.tables, "no table")


def curves(visit: driving.Visit) -> None:
    visit.open("curves")
    visit.clear("Runs")
    visit.add("Runs", "breakout_ppo")
    visit.choose("Figure", "eval_mean_return")
    visit.switch("Published curves")
    visit.wait(lambda: len(visit.chart()["lines"]) > 1, "no published curve")


def videos(visit: driving.Visit) -> None:
    visit.open("videos")
    visit.choose("Run A", SHOWN)
    visit.page.wait_for_function("() => document.querySelector('video')?.readyState >= 2")
    visit.page.evaluate("() => { document.querySelector('video').currentTime = 2.0; }")


def agent_view(visit: driving.Visit) -> None:
    visit.open("agent-view")
    visit.choose("Run", SHOWN)
    visit.wait(lambda: len(visit.charts()) > 1, "no charts")
    slider = visit.page.get_by_test_id("stSlider").filter(has_text="Step of the game").get_by_role("slider")
    for _ in range(8):  # the ball is in play by then, and the step has a map
        slider.press("ArrowRight")
        visit.settle()


def games(visit: driving.Visit) -> None:
    visit.open("games")
    visit.choose("Game", "cartpole")
    visit.wait(visit.charts, "no chart")


def ablations(visit: driving.Visit) -> None:
    visit.open("ablations")
    visit.wait(lambda: len(visit.charts()) == 2, "no charts")


def config_diff(visit: driving.Visit) -> None:
    visit.open("config-diff")
    visit.choose("Run A", "ms_pacman_dqn")
    visit.choose("Run B", "pong_ppo")
    visit.wait(lambda: len(visit.tables()) == 2, "no tables")


SHOTS: dict[str, Callable[[driving.Visit], None]] = {
    "overview": overview,
    "training_curves": curves,
    "video_player": videos,
    "agent_view": agent_view,
    "game_comparison": games,
    "ablation_comparator": ablations,
    "config_diff": config_diff,
}


def take(folder: Path, names: list[str]) -> None:
    IMAGES.mkdir(exist_ok=True)
    with driving.serve(folder) as url, driving.chromium() as browser:
        for scheme in ("light", "dark"):
            for name in names:
                visit = driving.Visit(browser.new_page(viewport=driving.LAPTOP, color_scheme=scheme), url)
                SHOTS[name](visit)
                visit.settle()
                visit.page.mouse.move(640, 5)  # nothing hovered
                visit.page.wait_for_timeout(1500)  # charts and tables fade in
                target = IMAGES / f"dashboard_{name}{'_dark' if scheme == 'dark' else ''}.png"
                visit.page.screenshot(path=target)
                visit.page.close()
                size = target.stat().st_size
                print(f"{target.relative_to(ROOT)}  {size / 1000:.0f} kB")
                assert size < LARGEST_BYTES, f"{target.name} is larger than {LARGEST_BYTES} bytes"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="of the runs")
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="a trained run with videos, for two of the pages")
    parser.add_argument("--only", nargs="+", choices=SHOTS, default=list(SHOTS), help="pages")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.keep or Path(temporary) / "outputs").resolve()
        folder.mkdir(parents=True, exist_ok=True)
        make_runs(folder, options.run)
        take(folder, options.only)


if __name__ == "__main__":
    main()
