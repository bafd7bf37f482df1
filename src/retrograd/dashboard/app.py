"""The Streamlit page: ``streamlit run app.py -- FOLDER``; ``retrograd dashboard`` starts it with safe settings."""

from __future__ import annotations

import sys
from functools import partial
from types import ModuleType

import streamlit as st

from retrograd.dashboard import context
from retrograd.dashboard.preload import preload
from retrograd.dashboard.views import ablations, agent_view, config_diff, curves, games, overview, videos

PAGES = {
    "overview": overview,
    "curves": curves,
    "videos": videos,
    "agent-view": agent_view,
    "games": games,
    "ablations": ablations,
    "config-diff": config_diff,
}


# less air and smaller headings than Streamlit's, and no video taller than the window: a laptop has no room for it;
# a page that draws itself anew does not fade meanwhile
STYLE = """<style>
.block-container { padding: 1.5rem 2rem 1rem; max-width: 1500px; }
.block-container h1 { font-size: 1.75rem; padding: 0.5rem 0 0.25rem; }
.block-container h3 { font-size: 1.1rem; padding: 0.25rem 0; }
.block-container video { max-height: 58vh; object-fit: contain; background: black; }
[data-stale="true"] { opacity: 1 !important; transition: none !important; }
[data-testid="stMetricValue"] { font-size: 1.4rem; }
[data-testid="stSidebarHeader"] { height: 1.5rem; }
</style>"""
SIDEBAR_PIXELS = 230


def draw(page: ModuleType, folder: str) -> None:
    """One page, drawn again by itself while runs are going on."""
    st.title(page.TITLE)
    live = st.session_state.get("live", True)

    @st.fragment(run_every=context.REFRESH_SECONDS if live else None)
    def body() -> None:
        seen = context.look(folder)
        if seen is not None:
            page.show(seen)

    body()


def main(folder: str) -> None:
    st.set_page_config(page_title="Retrograd", page_icon="🕹️", layout="wide", initial_sidebar_state=SIDEBAR_PIXELS)
    pages = [
        st.Page(
            partial(draw, page, folder),
            title=page.TITLE,
            icon=page.ICON,
            url_path=path,
            default=path == "overview",
        )
        for path, page in PAGES.items()
    ]
    chosen = st.navigation(pages)
    st.html(STYLE)
    st.sidebar.toggle("Refresh by itself", value=True, key="live", help="every few seconds, while runs are going on")
    chosen.run()
    preload()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "outputs")
