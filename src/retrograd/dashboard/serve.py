"""Streamlit's own command, warmed up: ``python -m retrograd.dashboard.serve run app.py … -- FOLDER``.

Before the server answers, the libraries of all pages are loaded, the folder is listed and what charts begin with is
read: the reader waits once, for the address, and then for nothing.
"""

from __future__ import annotations

import sys
import threading

from streamlit.web import cli

from retrograd.dashboard import app, charts, context  # noqa: F401 - app, for all pages and what they need
from retrograd.dashboard.views.games import MOST_DRAWN

PATIENCE_SECONDS = 10.0  # a folder that takes longer is read on while the server begins


def main() -> None:
    warming = threading.Thread(target=_warm_up, args=(sys.argv[-1],), daemon=True)
    warming.start()
    warming.join(PATIENCE_SECONDS)
    sys.argv[0] = "streamlit"
    sys.exit(cli.main(prog_name="streamlit"))


def _warm_up(folder: str) -> None:
    chart = charts.figure("x", "y")
    charts.add_line(chart, [0, 1], [0, 1], "line", charts.color(0))
    chart.to_json()  # the first chart of a process makes the classes of all
    reader = context.reader_of(folder)
    if not reader.folder.exists:
        return
    runs = reader.folder.runs()
    for info in reader.infos(runs.values())[:MOST_DRAWN]:
        reader.table(runs[info.name], "eval")


if __name__ == "__main__":
    main()
