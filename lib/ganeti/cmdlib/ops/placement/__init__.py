"""Choice of nodes for instances, by the user or by an instance allocator."""
