"""The program ``gnt-job``: jobs."""
