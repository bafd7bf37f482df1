"""Several processes on one run; nothing but the composition root imports this room."""
