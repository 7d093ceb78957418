"""The program ``gnt-network``: commands about networks."""
