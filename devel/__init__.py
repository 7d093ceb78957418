"""Programs for the developers of this project; nothing here is installed."""
