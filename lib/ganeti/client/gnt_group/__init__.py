"""The program ``gnt-group``: node groups."""
