"""The program ``gnt-cluster``: commands about the cluster as a whole."""
