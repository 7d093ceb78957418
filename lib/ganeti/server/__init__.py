"""Start-up, signals and privileges of the daemons; no cluster logic."""
