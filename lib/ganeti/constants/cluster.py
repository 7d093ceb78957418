"""The cluster as a whole: versions, SSH keys, master network, data collectors."""

from __future__ import annotations

CONFIG_MAJOR = 3
CONFIG_MINOR = 1
# major * 1,000,000 + minor * 10,000 + revision
CONFIG_VERSION = 3010000
PROTOCOL_VERSION = CONFIG_VERSION
RELEASE_VERSION = "3.1.0"
OS_API_VERSIONS = (10, 15, 20)
OS_API_VERSION = 20
EXPORT_VERSION = 0
RAPI_VERSION = 2

#: Table of the configuration -> what an object in it is called.
OBJECT_KINDS = {
    "nodes": "node",
    "nodegroups": "node group",
    "instances": "instance",
    "networks": "network",
    "disks": "disk",
    "filters": "filter rule",
    "documents": "document",
    "access_records": "access record",
}

SSH_KEY_TYPES = ("dsa", "ecdsa", "ed25519", "rsa")
SSH_KEY_TYPE_DEFAULT = "rsa"
SSH_KEY_BITS_DEFAULT = 2048

MASTER_POOL_SIZE_DEFAULT = 10
DEFAULT_MAC_PREFIX = "aa:00:00"
DEFAULT_MASTER_NETDEV = "eth0"

# In the list of the candidates' certificates, during a renewal: follows the UUID of a node whose
# next certificate this is.
CERT_RENEWAL_SUFFIX = "-renewal"

DATA_COLLECTORS = ("cpu-avg-load", "diskstats", "drbd", "inst-status-xen", "lv", "xen-cpu-avg-load")
# In microseconds, the unit of the configuration.
DATA_COLLECTOR_INTERVAL_US = 5_000_000

# Parameters of the network over which guests reach their node; it is made when it is first named.
COMMUNICATION_NETWORK4 = "169.254.0.0/16"
COMMUNICATION_NETWORK6 = "fe80::/10"
COMMUNICATION_MAC_PREFIX = "52:54:00"
COMMUNICATION_MODE = "routed"
COMMUNICATION_LINK = "communication_rt"
