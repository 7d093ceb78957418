"""The program ``gnt-job``: commands about jobs."""
