"""Starting the page with settings that are safe: this machine only, no telemetry, nothing to upload or run."""

from __future__ import annotations

import sys
from pathlib import Path

SETTINGS = {
    "server.address": "127.0.0.1",
    "server.headless": "true",
    "server.fileWatcherType": "none",
    "server.enableXsrfProtection": "true",
    "server.enableCORS": "true",
    "server.maxUploadSize": "1",
    "browser.gatherUsageStats": "false",
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "none",
    # one color for each ground and nothing else: the page is light or dark as the reader's system is
    "theme.light.primaryColor": "#0072B2",
    "theme.dark.primaryColor": "#3388C4",
}


def command(folder: Path, port: int) -> list[str]:
    """The command line that serves ``folder`` on ``port`` of this machine."""
    app = Path(__file__).with_name("app.py")
    words = [sys.executable, "-m", "retrograd.dashboard.serve", "run", str(app), f"--server.port={port}"]
    return [*words, *(f"--{key}={value}" for key, value in SETTINGS.items()), "--", str(folder)]
