"""The program ``gnt-os``: commands about OS definitions."""
