"""One module for each page, each with ``show(context)``."""
