"""Logical units about instances."""
