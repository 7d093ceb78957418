"""Logical units about tags."""
