"""What the browser loads only when a page first needs it, loaded before: the first chart comes with megabytes of code.

Streamlit's browser side fetches the code of charts, tables and controls when the first of each is drawn. Here the open
page asks for it as soon as it stands itself, so that turning to another one finds it there. Files are named by what
they hold and a mark of their content; where a release of Streamlit names them otherwise nothing is asked for, and pages
load their code when they need it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import streamlit as st

KINDS = ("DataFrame", "PlotlyChart", "Selectbox", "Slider", "Video", "ImageList")  # in the order they are asked for

# the page stands when its script has come to its end and nothing holds the place of what is still to be drawn; its
# reader has it to himself for a second, as the browser answers to nothing while it takes in megabytes of code
SCRIPT = """<script>
(() => {
  const stands = () => document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    && !document.querySelector('[data-testid="stSkeleton"]');
  const idle = window.requestIdleCallback ?? window.setTimeout;
  const load = (addresses) => addresses.length
    && idle(() => import(addresses[0]).catch(() => 0).then(() => load(addresses.slice(1))));
  const look = (left) => stands() ? setTimeout(load, 1000, ADDRESSES) : left && setTimeout(look, 200, left - 1);
  look(300);
})();
</script>"""


def preload() -> None:
    """Draw nothing; the browser asks for the code of the other pages in its spare time."""
    addresses = code_addresses()
    if addresses:  # the script is ours, with nothing in it that a run or a reader wrote
        st.html(SCRIPT.replace("ADDRESSES", json.dumps(addresses)), unsafe_allow_javascript=True)


@cache
def code_addresses() -> list[str]:
    """Where the server has the code of each kind; a kind that is not there once is left out."""
    folder = Path(st.__file__).parent / "static" / "static" / "js"
    found = [list(folder.glob(f"{kind}.*.js")) for kind in KINDS]
    return [f"/static/js/{files[0].name}" for files in found if len(files) == 1]
