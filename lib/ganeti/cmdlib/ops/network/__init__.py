"""Functions and base classes which the operations on networks share."""
