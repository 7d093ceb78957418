"""Parts of the operations on networks."""
