"""Kinds of values which at most one object of the configuration may have."""

from __future__ import annotations

from typing import Any, Final

# Kinds of values. The first three are also kinds of reservations.
INSTANCE_NAME: Final = "instance name"
MAC: Final = "MAC address"
LV: Final = "logical volume"  # "vg/lv"
IP: Final = "IP address"  # (network uuid, address)
MINOR: Final = "DRBD minor"  # (node uuid, minor)
PORT: Final = "port"
NAMES: Final = {
    "nodes": "node name",
    "nodegroups": "node group name",
    "instances": INSTANCE_NAME,
    "networks": "network name",
}

#: A kind and a value.
Key = tuple[str, Any]
