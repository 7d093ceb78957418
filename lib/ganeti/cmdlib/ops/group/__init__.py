"""Functions and base classes which the operations on node groups share."""
