"""Logical units which answer queries in a job."""
