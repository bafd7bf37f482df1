"""``retrograd doctor``."""

from __future__ import annotations

import argparse
from typing import Any

from retrograd.cli.words import add_command


def add_to(commands: Any) -> None:
    parser = add_command(
        commands, "doctor", "say what works on this machine and what a full run needs", "retrograd doctor"
    )
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="of the run whose needs are asked for")
    parser.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from retrograd.doctor import examine

    report, healthy = examine(options.overrides)
    print(report)
    return 0 if healthy else 1
