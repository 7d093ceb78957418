"""Functions and base classes which the operations on tags share."""
