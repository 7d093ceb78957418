"""The local socket of the master daemon: framing, versions, time limits in seconds."""

from __future__ import annotations

# Ends every message. A message does not contain it, because JSON escapes control characters.
TERMINATOR = b"\x03"
VERSION = 3010000

CONNECT_TIMEOUT_S = 30
CONNECT_RETRY_S = 1.0
READ_WRITE_TIMEOUT_S = 180
# The master answers a wait for a job in less than half of the time which the client waits for it.
WAIT_FOR_JOB_CHANGE_S = (READ_WRITE_TIMEOUT_S - 1) // 2

# Environment variable which chooses another socket: "master", "query" or a path.
OVERRIDE_VARIABLE = "FORCE_LUXI_SOCKET"
OVERRIDE_MASTER = "master"
OVERRIDE_QUERY = "query"
