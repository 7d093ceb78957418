"""Networks: NIC modes and parameters, address families, ports of daemons."""

from __future__ import annotations

NIC_MODE_BRIDGED = "bridged"
NIC_MODE_ROUTED = "routed"
NIC_MODE_OVS = "openvswitch"
NIC_MODE_EXT = "ext"
# Stands for the mode which the network of the address has; it is not stored.
NIC_IP_POOL = "pool"
NIC_MODES = (NIC_MODE_BRIDGED, NIC_MODE_EXT, NIC_MODE_OVS, NIC_MODE_ROUTED, NIC_IP_POOL)
# QEMU's user networking, which needs no privileges; it exists in virtual clusters only.
NIC_MODE_USER = "user"
MAX_NICS = 8

# Keys of one NIC in a request.
INIC_PARAMS = ("bridge", "ip", "ip6", "link", "mac", "mode", "name", "network", "vlan")
NIC_DEFAULTS: dict[str, object] = {"link": "xen-br0", "mode": NIC_MODE_BRIDGED, "vlan": ""}
NIC_PARAM_TYPES = {"link": "string", "mode": "string", "vlan": "string"}

VALUE_AUTO = "auto"
VALUE_GENERATE = "generate"
VALUE_NONE = "none"
VALUE_DEFAULT = "default"

# Address families in the configuration: the numbers of AF_INET and AF_INET6.
IP4_FAMILY = 2
IP6_FAMILY = 10
IP4_VERSION = 4
IP6_VERSION = 6

# The first and the last port of the cluster's pool for instances.
FIRST_PORT = 11000
LAST_PORT = 14999

HOTPLUG_ACTION_ADD = "hotadd"
HOTPLUG_ACTION_REMOVE = "hotremove"
HOTPLUG_ACTION_MODIFY = "hotmod"
HOTPLUG_TARGET_DISK = "disk"
HOTPLUG_TARGET_NIC = "nic"
