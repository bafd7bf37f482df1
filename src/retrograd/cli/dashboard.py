"""``retrograd dashboard``."""

from __future__ import annotations

import argparse
import importlib.util
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from retrograd.cli.words import add_command
from retrograd.core.errors import UsageError


def add_to(commands: Any) -> None:
    parser = add_command(
        commands,
        "dashboard",
        "look at runs in the browser, also at those still going on",
        "retrograd dashboard",
        "retrograd dashboard outputs --port 8600",
    )
    parser.add_argument("folder", nargs="?", default="outputs", metavar="FOLDER", help="with runs (default: outputs)")
    parser.add_argument("--port", type=int, default=8501, metavar="N", help="on this machine (default: 8501)")
    parser.set_defaults(run=_dashboard)


def _dashboard(options: argparse.Namespace) -> int:
    missing = [name for name in ("streamlit", "plotly") if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"the dashboard needs {' and '.join(missing)}: pip install 'retrograd[dashboard]'")
    folder = Path(options.folder)
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; the dashboard looks at a folder with runs, e.g. outputs")
    if not 1 <= options.port <= 65535:
        raise UsageError(f"--port is {options.port}: must be from 1 to 65535")
    _require_free(options.port)
    from retrograd.dashboard.launch import command

    print(f"http://127.0.0.1:{options.port}   (Ctrl-C ends it)", file=sys.stderr)
    # Streamlit asks a newcomer for an address unless it is told not to
    environment = {**os.environ, "STREAMLIT_BROWSER_GATHER_USAGE_STATS": "false"}
    return subprocess.run(command(folder.resolve(), options.port), env=environment, check=False).returncode


def _require_free(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(f"--port {port} cannot be used ({error.strerror}); choose another one") from error
