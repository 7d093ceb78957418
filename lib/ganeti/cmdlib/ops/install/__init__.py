"""Installation of operating systems, and forthcoming instances."""
