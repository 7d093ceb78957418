"""Values of the hardware watchdogs of nodes (``doc/design-instance-failover.rst``)."""

from __future__ import annotations

#: Seconds after which a device which is not fed restarts the machine, when the administrator only
#: says "yes"; the least and the largest number of them.
DEFAULT_S = 10
MIN_S, MAX_S = 5, 120
#: Seconds for which the answers of a majority of the candidates let a node feed its device. They
#: run from the moment at which the node asked.
LEASE_S = 10
#: With fewer candidates the loss of one of them would restart all nodes.
LEAST_CANDIDATES = 3

#: Two clocks which count the same time may differ by this part of it, and by this many seconds.
CLOCK_RATE = 0.01
CLOCK_STEP_S = 1.0

# What a node reports about its device.
#: The device restarts the machine unless it is fed, and the node keeps its promise.
ARMED = "armed"
#: The node asks the master to release it from its promise.
RELEASE = "release"
#: There is no promise.
NONE = "none"
STATES = frozenset((ARMED, RELEASE, NONE))


def certain_s(timeout_s: float) -> float:
    """Return the time after which a machine without leave to feed has certainly restarted.

    The time runs from the moment at which a majority of the candidates has the record that the node
    is left. Until then the node may have got answers, which are good for the lease. It feeds the
    device for the last time at most one timeout after the end of the lease: a process which is
    paused between its decision and its feeding for longer finds that the device has fired. After
    another timeout the device fires.

    :param timeout_s: the timeout which the device has reported, in seconds.
    """
    return (LEASE_S + 2 * timeout_s) * (1 + CLOCK_RATE) + CLOCK_STEP_S
