"""What crosses a process boundary: JSON, the local socket's framing, node calls, errors."""
