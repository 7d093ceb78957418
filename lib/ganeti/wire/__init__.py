"""Formats of data which crosses a process boundary: JSON, errors, and the table of node calls."""
