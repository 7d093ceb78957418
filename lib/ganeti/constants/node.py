"""Nodes and node groups: roles, parameters, allocation policies, out-of-band commands."""

from __future__ import annotations

ROLE_MASTER = "M"
ROLE_CANDIDATE = "C"
ROLE_DRAINED = "D"
ROLE_OFFLINE = "O"
ROLE_REGULAR = "R"
ROLES = (ROLE_CANDIDATE, ROLE_DRAINED, ROLE_MASTER, ROLE_OFFLINE, ROLE_REGULAR)

# States of a node in maintenance.
MAINTENANCE_LEAVING = "leaving"
MAINTENANCE_READY = "ready"
MAINTENANCE_RETURNING = "returning"

ND_DEFAULTS: dict[str, object] = {
    "cpu_speed": 1.0,
    "exclusive_storage": False,
    "oob_program": "",
    "ovs": False,
    "ovs_link": "",
    "ovs_name": "switch1",
    "spindle_count": 1,
    "ssh_port": 22,
}
ND_PARAM_TYPES = {
    "cpu_speed": "float",
    "exclusive_storage": "bool",
    "oob_program": "string",
    "ovs": "bool",
    "ovs_link": "maybe-string",
    "ovs_name": "maybe-string",
    "spindle_count": "int",
    "ssh_port": "int",
}
# Node parameters which may be set for the cluster and a group, but not for a single node.
ND_GLOBALS = frozenset(("exclusive_storage",))

ALLOC_PREFERRED = "preferred"
ALLOC_LAST_RESORT = "last_resort"
ALLOC_UNALLOCABLE = "unallocable"
ALLOC_POLICIES = (ALLOC_PREFERRED, ALLOC_LAST_RESORT, ALLOC_UNALLOCABLE)
INITIAL_GROUP_NAME = "default"

EVAC_PRIMARY = "primary-only"
EVAC_SECONDARY = "secondary-only"
EVAC_ALL = "all"
EVAC_MODES = (EVAC_ALL, EVAC_PRIMARY, EVAC_SECONDARY)

OOB_COMMANDS = ("health", "power-cycle", "power-off", "power-on", "power-status")
OOB_TIMEOUT_S = 60
OOB_POWER_DELAY_S = 2.0

# Keys of the hypervisor state which the administrator may declare for a node.
#: Types of storage whose state an administrator may set.
DISK_STATE_TYPES = ("plain",)
HV_STATE_PARAMS = ("cpu_node", "cpu_total", "mem_hv", "mem_node", "mem_total")
