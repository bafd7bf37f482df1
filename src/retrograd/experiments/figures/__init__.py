"""How figures are drawn: one kind a module, in a theme that is handed in."""
