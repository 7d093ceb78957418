"""Parts of the operations on node groups."""
