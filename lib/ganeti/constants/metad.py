"""The metadata daemon and helper guests: addresses, names, limits.

Address, port, names of NICs and default times are published.
"""

from __future__ import annotations

PROGRAM = "ganeti-metad"
#: The address on which every guest reaches the daemon of its node.
ADDRESS = "169.254.169.254"
PORT = 80
#: The network of this address and of the addresses of the guests.
NETWORK = "169.254.0.0/16"
NETMASK = "255.255.0.0"
#: First part of the name of a communication NIC, over which a guest reaches its node.
NIC_PREFIX = "ganeti:communication:"
#: First part of the names of the tap devices of communication NICs.
TAP_PREFIX = "gnt.com."

# The kinds of OS parameters: who may read them, besides the guest.
PUBLIC = "public"
PRIVATE = "private"
SECRET = "secret"  # noqa: S105  (a word, no password)

# Tasks of a helper guest.
TASK_INSTALL = "install"
TASK_ZERO = "zero"

# Events which a helper guest reports, in the argument ``event`` of a request.
EVENT_START = "start"
EVENT_LOG = "log"
EVENT_EXIT = "exit"
EVENTS = (EVENT_START, EVENT_LOG, EVENT_EXIT)

#: The longest request of a guest, and the size of the log that is kept of it, in bytes.
REQUEST_MAX_BYTES = 256 * 1024
LOG_MAX_BYTES = 1024 * 1024

#: Seconds from the start of a helper guest in which it must request its task.
HELPER_STARTUP_S = 300
#: Seconds from this request in which the helper guest must switch itself off.
HELPER_SHUTDOWN_S = 7200
#: Seconds in addition for each MiB which the helper guest overwrites.
ZEROING_PER_MIB_S = 0.05
