"""Values of the automatic failover of the master's role (``doc/design-auto-failover.rst``)."""

from __future__ import annotations

#: Seconds without a master after which a candidate asks for its role: default, and limits.
DEFAULT_S = 5
MIN_S = 3
MAX_S = 86400

# What a node knows about its own master daemon, and a candidate about that of the master.
#: The daemon answers, and could commit changes within the time of the parameter.
SERVING = "serving"
#: It answers, and no majority has confirmed for longer than that that it can commit changes.
STALLED = "stalled"
#: It was stopped on purpose: by a command or by the init system.
STOPPED = "stopped"
#: It does not run, and nobody stopped it.
DEAD = "dead"
#: It runs and does not answer, because it is starting, hangs or was paused.
MUTE = "mute"
#: The node daemon of the master does not answer.
UNREACHABLE = "unreachable"
#: The node daemon of the master answers with an error, so that nothing is known.
UNCLEAR = "unclear"

STATES = frozenset((SERVING, STALLED, STOPPED, DEAD, MUTE, UNREACHABLE, UNCLEAR))
