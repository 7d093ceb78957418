"""Functions which the operations for tests share."""
