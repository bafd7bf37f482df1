"""Make tests/golden/statistics.npz: scores, the resamples that rliable drew, and what it made of them.

Run it in an environment of its own that has rliable; the tests read the file alone:
    python -m venv ENV && ENV/bin/pip install rliable==1.2.0 'pandas<3'
    ENV/bin/python benchmarks/make_golden_statistics.py
The first two pairs of matrices are the examples of rliable's own tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from rliable import library, metrics

OUT = Path(__file__).parents[1] / "tests" / "golden" / "statistics.npz"
RESAMPLES = 100
THRESHOLDS = np.array([0.0, 0.25, 0.5, 1.0, 2.0, 8.0, 40.0])


class Recorder:
    """Keeps what rliable draws from numpy's global generator."""

    def __init__(self) -> None:
        self.choice, self.drawn = np.random.choice, []

    def __enter__(self) -> list[Any]:
        def choice(*args: Any, **options: Any) -> Any:
            self.drawn.append(self.choice(*args, **options))
            return self.drawn[-1]

        np.random.choice = choice
        np.random.seed(0)  # noqa: NPY002
        return self.drawn

    def __exit__(self, *_: object) -> None:
        np.random.choice = self.choice


def examples() -> dict[str, tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    counting = np.arange(80).reshape(5, 16)
    return {
        "counting": (counting, np.flip(counting, axis=0)),
        "small": (np.array([[1, 2], [2, 2], [1, 1], [2, 1]]), np.array([[1, 1], [2, 2], [3, 3]])),
        "skewed": (rng.lognormal(0, 1.5, (10, 26)), rng.lognormal(0.2, 1.5, (7, 26))),
        "ties": (rng.integers(0, 4, (6, 9)), rng.integers(0, 4, (8, 9))),
    }


def aggregates(scores: Any) -> Any:
    functions = metrics.aggregate_mean, metrics.aggregate_median, metrics.aggregate_iqm
    return np.array([function(scores) for function in functions] + [metrics.aggregate_optimality_gap(scores)])


def small(indices: list[Any]) -> Any:
    return np.stack(indices).astype(np.uint8)


def aggregate_case(scores: Any) -> dict[str, Any]:
    case = {"aggregates": aggregates(scores)}
    for name, tasks in (("runs", False), ("tasks", True)):
        with Recorder() as drawn:
            options = {"reps": RESAMPLES, "task_bootstrap": tasks}
            _, intervals = library.get_interval_estimates({"x": scores}, aggregates, **options)
        case[f"{name}_interval"] = intervals["x"]
        case[f"{name}_rows"] = small(drawn[::2] if tasks else drawn)
        if tasks:
            case["tasks_columns"] = small(drawn[1::2])
    return case


def profile_case(scores: Any) -> dict[str, Any]:
    case = {}
    for name, over_runs in (("profile", True), ("task_profile", False)):
        with Recorder() as drawn:
            options = {"use_score_distribution": over_runs, "reps": RESAMPLES}
            profiles, intervals = library.create_performance_profile({"x": scores}, THRESHOLDS, **options)
        case |= {name: profiles["x"], f"{name}_interval": intervals["x"], f"{name}_rows": small(drawn)}
    return case


def improvement_case(ours: Any, theirs: Any) -> dict[str, Any]:
    with Recorder() as drawn:
        points, intervals = library.get_interval_estimates(
            {"x": [ours, theirs]}, metrics.probability_of_improvement, reps=RESAMPLES
        )
    return {
        "improvement": points["x"],
        "improvement_interval": intervals["x"],
        "improvement_rows": small(drawn[::2]),
        "improvement_other_rows": small(drawn[1::2]),
    }


def main() -> None:
    arrays: dict[str, Any] = {"thresholds": THRESHOLDS}
    for name, (ours, theirs) in examples().items():
        case = {"ours": ours, "theirs": theirs}
        case |= aggregate_case(ours) | profile_case(ours) | improvement_case(ours, theirs)
        arrays |= {f"{name}/{key}": value for key, value in case.items()}
    np.savez_compressed(OUT, **arrays)
    print(f"{OUT} {OUT.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
