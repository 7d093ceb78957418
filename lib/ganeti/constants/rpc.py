"""Node calls: time limits in seconds, encodings."""

from __future__ import annotations

# The answer to the call `version`; it must be the same on the master and the nodes.
PROTOCOL_VERSION = 3010000

CONNECT_TIMEOUT_S = 5
TIMEOUT_URGENT_S = 60
TIMEOUT_FAST_S = 300
TIMEOUT_NORMAL_S = 900
TIMEOUT_SLOW_S = 3600
TIMEOUT_4HRS_S = 14400
TIMEOUT_1DAY_S = 86400

# Encodings of file contents.
ENCODING_NONE = 0
ENCODING_ZLIB_BASE64 = 1

MAX_CONCURRENT_CONNECTIONS = 30
