"""Logical units about OS definitions."""
