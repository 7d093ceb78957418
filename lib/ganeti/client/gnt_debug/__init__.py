"""The program ``gnt-debug``: tools for developers and for bug reports."""
