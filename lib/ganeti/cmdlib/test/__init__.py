"""Logical units for testing the machinery itself."""
