"""The program ``gnt-instance``: commands about instances."""
