"""Functions which the operations on the cluster as a whole share."""
