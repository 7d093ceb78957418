"""The program ``gnt-group``: commands about node groups."""
