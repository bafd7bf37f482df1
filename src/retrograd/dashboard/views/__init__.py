"""One module for each page, each with ``show(context)``.

Not called ``pages``: Streamlit would take that folder beside the app for pages of its own, and open those by address.
"""
