"""Logical units about the cluster as a whole."""
