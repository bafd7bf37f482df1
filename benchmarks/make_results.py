"""Draw every figure of docs/results from the logs committed beside it.

python benchmarks/make_results.py        or: make results
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from retrograd.experiments.plots import Plotter

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"


def main() -> None:
    for run in sorted((RESULTS / "logs").iterdir()):
        plotter = Plotter()
        plotter.plot_learning_curves([run], max_frames=2e6)
        with tempfile.TemporaryDirectory() as folder:
            pictures = plotter.save_plots(Path(folder))
            for picture in pictures:
                target = RESULTS / f"{run.name}{picture.suffix}"
                target.write_bytes(picture.read_bytes())
                print(target.relative_to(RESULTS.parents[1]))


if __name__ == "__main__":
    main()
