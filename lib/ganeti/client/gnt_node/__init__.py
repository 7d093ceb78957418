"""The program ``gnt-node``: the nodes of the cluster."""
