"""Logical units for tests of the daemons."""
