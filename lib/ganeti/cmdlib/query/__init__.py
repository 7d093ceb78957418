"""Logical units which answer queries as jobs."""
