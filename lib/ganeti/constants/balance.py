"""Values of the automatic balance of the cluster by the watcher (manual page **gnt-cluster**)."""

from __future__ import annotations

#: Keys of the parameter ``auto_balance`` of the cluster.
MOVES_PER_HOUR = "moves_per_hour"
MIN_GAIN = "min_gain"

#: What ``--auto-balance=yes`` means, and what a missing key means.
DEFAULTS: dict[str, float] = {MOVES_PER_HOUR: 4, MIN_GAIN: 0.01}

MAX_MOVES_PER_HOUR = 1000
