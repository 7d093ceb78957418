"""The program ``gnt-debug``: commands about tools for developers and for bug reports."""
