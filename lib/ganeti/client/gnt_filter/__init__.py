"""The program ``gnt-filter``: rules that decide which jobs may run."""
