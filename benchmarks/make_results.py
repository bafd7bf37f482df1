"""Draw every figure of docs/results from the logs committed beside it, with published curves underneath.

python benchmarks/make_results.py        or: make results
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from retrograd.experiments.plots import Plotter
from retrograd.experiments.runs import read_run

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
SHORTEST_FRAMES = 2_000_000  # published curves have few points before


def main() -> None:
    for folder in sorted((RESULTS / "logs").iterdir()):
        run = read_run(folder)
        plotter = Plotter()
        plotter.plot_learning_curves([run], max_frames=max(SHORTEST_FRAMES, 1.05 * run.last_frame))
        with tempfile.TemporaryDirectory() as drawn:
            for picture in plotter.save_plots(drawn):
                ending = picture.name.removeprefix("learning_curves")  # .png, _dark.png, .svg, _dark.svg
                target = RESULTS / f"{folder.name}{ending}"
                target.write_bytes(picture.read_bytes())
                print(target.relative_to(RESULTS.parents[1]))


if __name__ == "__main__":
    main()
