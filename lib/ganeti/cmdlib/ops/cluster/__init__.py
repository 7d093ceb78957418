"""Parts of the operations on the cluster as a whole."""
