"""The program ``gnt-os``: operating systems which the nodes can install."""
