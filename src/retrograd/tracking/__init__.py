"""Where numbers go: CSV files, the console, and the objects that gather and pass them on."""
