"""Logical units about networks."""
