"""The program ``gnt-node``: commands about nodes."""
