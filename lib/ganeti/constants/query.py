"""Queries: resources, kinds of fields, codes of results."""

from __future__ import annotations

INSTANCE = "instance"
NODE = "node"
GROUP = "group"
JOB = "job"
LOCK = "lock"
NETWORK = "network"
CLUSTER = "cluster"
OS = "os"
EXPORT = "export"
EXTSTORAGE = "extstorage"
FILTER = "filter"
# The resources which can be queried, with an opcode or over the socket.
RESOURCES = (CLUSTER, EXPORT, EXTSTORAGE, FILTER, GROUP, INSTANCE, JOB, LOCK, NETWORK, NODE, OS)

# Kinds of fields.
KIND_UNKNOWN = "unknown"
KIND_TEXT = "text"
KIND_BOOL = "bool"
KIND_NUMBER = "number"
KIND_FLOAT = "float"
KIND_UNIT = "unit"
KIND_TIMESTAMP = "timestamp"
KIND_OTHER = "other"
KINDS = (
    KIND_BOOL,
    KIND_FLOAT,
    KIND_NUMBER,
    KIND_OTHER,
    KIND_TEXT,
    KIND_TIMESTAMP,
    KIND_UNIT,
    KIND_UNKNOWN,
)

# The status of each value.
RS_NORMAL = 0
RS_UNKNOWN = 1
RS_NODATA = 2
RS_UNAVAIL = 3
RS_OFFLINE = 4
RS_ALL = (RS_NORMAL, RS_UNKNOWN, RS_NODATA, RS_UNAVAIL, RS_OFFLINE)

# Fields which describe an object for users (info) and for programs (the REST interface).
NETWORK_FIELDS = (
    "name",
    "network",
    "gateway",
    "network6",
    "gateway6",
    "mac_prefix",
    "free_count",
    "reserved_count",
    "map",
    "group_list",
    "inst_list",
    "external_reservations",
)
OS_FIELDS = (
    "name",
    "valid",
    "variants",
    "parameters",
    "api_versions",
    "blacklisted",
    "hidden",
    "trusted",
)
