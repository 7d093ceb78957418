"""The program ``gnt-filter``: commands about rules that decide which jobs may run."""
