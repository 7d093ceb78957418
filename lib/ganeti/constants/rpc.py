"""Node calls: version of the protocol, time limits in seconds."""

from __future__ import annotations

# The answer to the call `version`; it must be the same on the master and the nodes.
PROTOCOL_VERSION = 3010000

CONNECT_TIMEOUT_S = 5
TIMEOUT_URGENT_S = 60
TIMEOUT_NORMAL_S = 900
TIMEOUT_SLOW_S = 3600
