"""What the browser loads only when a page first needs it, loaded before: the first chart comes with megabytes of code.

Streamlit's browser side fetches the code of charts, tables and controls when the first of each is drawn. Here the open
page asks for it as soon as it stands itself, so that turning to another one finds it there, and draws one small chart
out of sight: the first of a page takes twice as long as those after it. Files are named by what they hold and a mark of
their content; where a release of Streamlit names them otherwise nothing is asked for, and pages load their code when
they need it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import streamlit as st

from retrograd.dashboard import charts

# in the order they are asked for; the last is what shows a command to be copied
KINDS = ("DataFrame", "PlotlyChart", "Selectbox", "Slider", "Video", "ImageList", "StreamlitSyntaxHighlighter")

# the page stands when its script has come to its end and nothing holds the place of what is still to be drawn; its
# reader has it to himself for a second, as the browser answers to nothing while it takes in megabytes of code
SCRIPT = """<script>
(() => {
  if (window.retrogradLoads) return;  // once for all pages
  window.retrogradLoads = true;
  const stands = () => document.querySelector('[data-testid="stApp"][data-test-script-state="notRunning"]')
    && !document.querySelector('[data-testid="stSkeleton"]');
  const idle = window.requestIdleCallback ?? window.setTimeout;
  const load = (addresses) => addresses.length
    ? idle(() => import(addresses[0]).catch(() => 0).then(() => load(addresses.slice(1)))) : idle(practise);
  const practise = () => {
    if (!window.Plotly || document.querySelector('.js-plotly-plot')) return;
    const place = document.createElement('div');
    place.style.cssText = 'position: fixed; left: -2000px; width: 900px; height: 400px';
    document.body.append(place);
    const chart = CHART;
    window.Plotly.newPlot(place, chart.data, chart.layout).catch(() => 0)
      .then(() => { window.Plotly.purge(place); place.remove(); });
  };
  const look = (left) => stands() ? setTimeout(load, 1000, ADDRESSES) : left && setTimeout(look, 200, left - 1);
  look(300);
})();
</script>"""


def preload() -> None:
    """Draw nothing; the browser asks for the code of the other pages in its spare time."""
    if code_addresses():
        st.html(script(), unsafe_allow_javascript=True)


@cache
def script() -> str:
    """All of it is ours: nothing that a run or a reader wrote is in it."""
    return SCRIPT.replace("ADDRESSES", json.dumps(code_addresses())).replace("CHART", small_chart())


@cache
def small_chart() -> str:
    """With all that charts of training have: lines, points and a band."""
    chart = charts.figure("x", "y")
    charts.add_band(chart, [0, 1], [0, 1], [1, 2], charts.color(0))
    charts.add_line(chart, [0, 1], [0, 1], "line", charts.color(0))
    charts.add_marks(chart, [0, 1], [0, 1], "points", charts.color(1))
    chart.update_layout(template="none")  # the usual one is thousands of signs
    return str(chart.to_json())


@cache
def code_addresses() -> list[str]:
    """Where the server has the code of each kind; a kind that is not there once is left out."""
    folder = Path(st.__file__).parent / "static" / "static" / "js"
    found = [list(folder.glob(f"{kind}.*.js")) for kind in KINDS]
    return [f"/static/js/{files[0].name}" for files in found if len(files) == 1]
