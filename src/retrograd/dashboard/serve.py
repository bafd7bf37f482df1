"""Streamlit's own command, warmed up: ``python -m retrograd.dashboard.serve run app.py … -- FOLDER``.

Before the server answers, the libraries of all pages are loaded, the folder is listed and what charts begin with is
read: the reader waits once, for the address, and then for nothing. Answers are sent the moment they are ready.
"""

from __future__ import annotations

import socket
import sys
import threading
from typing import Any

import numpy as np
from streamlit.web import cli

from retrograd.dashboard import app, charts, context  # noqa: F401 - app, for all pages and what they need
from retrograd.dashboard.preload import small_chart
from retrograd.dashboard.views.games import MOST_DRAWN

PATIENCE_SECONDS = 10.0  # a folder that takes longer is read on while the server begins


def main() -> None:
    _send_at_once()
    warming = threading.Thread(target=_warm_up, args=(sys.argv[-1],), daemon=True)
    warming.start()
    warming.join(PATIENCE_SECONDS)
    sys.argv[0] = "streamlit"
    sys.exit(cli.main(prog_name="streamlit"))


def _send_at_once() -> None:
    """Have no small packet held back until the one before it is confirmed.

    An answer is a head and a body in packets of their own, and the browser confirms the first only after 40 ms: of the
    hundred files a page begins with each would wait that long. asyncio sees to it for sockets that name their protocol;
    Streamlit's does not. What a listening socket is told holds for all connections it takes.
    """
    listen = socket.socket.listen

    def listen_without_delay(listening: Any, *backlog: int) -> None:
        if listening.family in (socket.AF_INET, socket.AF_INET6):
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listen(listening, *backlog)

    socket.socket.listen = listen_without_delay  # type: ignore[method-assign]


def _warm_up(folder: str) -> None:
    _draw_nothing()
    small_chart()
    reader = context.reader_of(folder)
    if not reader.folder.exists:
        return
    runs = reader.folder.runs()
    seen = context.Context(reader, tuple(reader.infos(runs.values())), runs)
    seen.labels(seen.names)
    for name in seen.names[:MOST_DRAWN]:
        reader.table(runs[name], "eval")


def _draw_nothing() -> None:
    """The first chart of a process makes the classes of all, and the first band the numbers that all are drawn with."""
    line = (np.arange(2.0), np.arange(2.0))
    chart = charts.figure("x", "y")
    charts.add_group(chart, "two seeds", [line] * 2, charts.color(0))
    chart.to_json()


if __name__ == "__main__":
    main()
