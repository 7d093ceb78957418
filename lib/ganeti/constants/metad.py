"""The metadata daemon and helper guests: addresses, names, limits.

Published are address, port, names of interfaces and default times.
"""

from __future__ import annotations

PROGRAM = "ganeti-metad"
#: Where every guest finds the daemon of its node.
ADDRESS = "169.254.169.254"
PORT = 80
#: The network that holds this address and those of the guests: its prefix.
NETWORK = "169.254.0.0/16"
NETMASK = "255.255.0.0"
#: First part of the name of the interface through which a guest talks to its node.
NIC_PREFIX = "ganeti:communication:"
#: First part of the names of the host's ends of these interfaces.
TAP_PREFIX = "gnt.com."

# Who may read a parameter of an operating system, besides the guest.
PUBLIC = "public"
PRIVATE = "private"
SECRET = "secret"  # noqa: S105  (a word, no password)

# What a helper guest is for.
TASK_INSTALL = "install"
TASK_ZERO = "zero"

# What a helper guest tells, as the argument ``event`` of a request.
EVENT_START = "start"
EVENT_LOG = "log"
EVENT_EXIT = "exit"
EVENTS = (EVENT_START, EVENT_LOG, EVENT_EXIT)

#: A request of a guest is at most so long; of what it tells, the end is kept.
REQUEST_MAX_BYTES = 256 * 1024
LOG_MAX_BYTES = 1024 * 1024

#: Seconds from its start until a helper guest must have asked for its task.
HELPER_STARTUP_S = 300
#: Seconds from then on until it must have switched itself off.
HELPER_SHUTDOWN_S = 7200
#: Seconds in addition for each MiB that is to be overwritten.
ZEROING_PER_MIB_S = 0.05
