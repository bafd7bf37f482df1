"""Figures that tests record with ``record_property("figure", …)`` are printed at the end of the session."""

from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    figures = [
        (report.nodeid.split("::", 1)[-1], value)
        for report in terminalreporter.stats.get("passed", [])
        for name, value in getattr(report, "user_properties", [])
        if name == "figure"
    ]
    if figures:
        terminalreporter.section("figures")
        for test, value in figures:
            terminalreporter.write_line(f"{test}: {value}")
