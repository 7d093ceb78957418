"""The program ``gnt-cluster``: commands for the cluster as a whole."""
