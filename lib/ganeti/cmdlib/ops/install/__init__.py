"""Installation of operating systems, and instances which are only reserved."""
