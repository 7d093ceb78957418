"""Values of the automatic failover of instances (``doc/design-instance-failover.rst``)."""

from __future__ import annotations

#: Seconds without an answer of a node, when the administrator only says "yes".
DEFAULT_S = 15
#: The least and the largest number of these seconds.
MIN_S, MAX_S = 5, 3600
#: With this tag of an instance, a node group or the cluster, the I/O of mirrored disks is not
#: suspended when the link of their replicas breaks, and an administrator decides after the death of
#: a node.
ALONE_TAG = "ganeti:auto-failover:write-alone"
