"""The configuration query daemon: requests, answers, limits.

Ports, kinds of requests, keys and codes are published.
"""

from __future__ import annotations

PORT = 1814
PROTOCOL_VERSION = 1
#: The first bytes of every datagram, in both directions.
MAGIC = b"plj0"
#: A request is ignored when its time differs by more seconds.
MAX_CLOCK_SKEW_S = 300
#: The longest request, and the longest answer, in bytes.
MAX_REQUEST_BYTES = 4096
MAX_DATAGRAM_BYTES = 61440

REQ_PING = 0
REQ_NODE_ROLE = 1
REQ_NODE_BY_INSTANCE_IP = 2
REQ_CLUSTER_MASTER = 3
REQ_NODE_IPS = 4
REQ_CANDIDATE_IPS = 5
REQ_INSTANCE_IPS = 6
REQ_NODE_DRBD = 7
REQ_NODE_INSTANCES = 8
REQ_INSTANCE_DISKS = 9
REQ_CONFIG = 10
REQ_DATA_COLLECTORS = 11
#: Ours: whether the cluster has left a node behind (:mod:`ganeti.watchdogd.rule`). It is answered
#: at any difference of the clocks, because the node restarts when it gets no answer.
REQ_NODE_LEFT = 1000

# Keys of the query in a request.
KEY_LINK = "0"
KEY_IP = "1"
KEY_IPLIST = "2"
KEY_FIELDS = "3"
# Fields of REQ_CLUSTER_MASTER.
FIELD_NAME = 0
FIELD_CLUSTER_IP = 1
FIELD_MASTER_IP = 2

STATUS_OK = 0
STATUS_ERROR = 1
STATUS_NOT_IMPLEMENTED = 2

ERROR_UNKNOWN_ENTRY = 0
ERROR_INTERNAL = 1
ERROR_ARGUMENT = 2

ROLE_MASTER = 0
ROLE_CANDIDATE = 1
ROLE_OFFLINE = 2
ROLE_DRAINED = 3
ROLE_REGULAR = 4

#: Number of candidates which a client asks, and seconds for which it waits for their answers.
COVERAGE = 6
EXPIRE_S = 10.0
#: The shortest and the longest time in seconds between two polls of its files by the daemon.
RELOAD_LEAST_S = 0.25
RELOAD_MOST_S = 17.0
