"""Streamlit's own command, warmed up: ``python -m retrograd.dashboard.serve run app.py … -- FOLDER``.

The libraries of all pages are loaded before the server answers, and the folder is listed while it starts, so that the
first page has little left to wait for.
"""

from __future__ import annotations

import sys
import threading

from streamlit.web import cli

from retrograd.dashboard import app, context  # noqa: F401 - app, for all pages and what they need


def main() -> None:
    threading.Thread(target=_list_runs, args=(sys.argv[-1],), daemon=True).start()
    sys.argv[0] = "streamlit"
    sys.exit(cli.main(prog_name="streamlit"))


def _list_runs(folder: str) -> None:
    reader = context.reader_of(folder)
    if reader.folder.exists:
        reader.infos()


if __name__ == "__main__":
    main()
