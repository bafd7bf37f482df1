"""Draw every figure of docs/results from the logs committed beside it, with published curves underneath.

python benchmarks/make_results.py        or: make results

A folder of ``logs/`` is a run, or holds several runs that belong into one figure.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from retrograd.experiments.plots import draw_curves

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"


def main() -> None:
    for folder in sorted((RESULTS / "logs").iterdir()):
        runs = [path.parent for path in sorted(folder.rglob("summary.json"))]
        with tempfile.TemporaryDirectory() as drawn:
            for picture in draw_curves(runs, drawn):
                ending = picture.name.removeprefix("learning_curves")  # .png, _dark.png, .svg, _dark.svg
                target = RESULTS / f"{folder.name}{ending}"
                target.write_bytes(picture.read_bytes())
                print(target.relative_to(RESULTS.parents[1]))


if __name__ == "__main__":
    main()
