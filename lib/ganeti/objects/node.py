"""Nodes and node groups."""

from __future__ import annotations

import dataclasses
from typing import Any

from ganeti.constants import net
from ganeti.constants.node import ND_PARAM_TYPES
from ganeti.objects.base import parameters

_ND = frozenset(ND_PARAM_TYPES)
_NIC = frozenset(net.NIC_PARAM_TYPES)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A machine. `group` is the UUID of its node group; `ndparams` are its own values only."""

    name: str
    primary_ip: str
    secondary_ip: str
    master_candidate: bool
    offline: bool
    drained: bool
    group: str
    master_capable: bool
    vm_capable: bool
    ndparams: dict[str, Any] = parameters(_ND)
    powered: bool
    # Set by hand, for hypervisors and storage which report wrongly; no file holds them so far.
    hv_state_static: dict[str, Any] | None = None
    disk_state_static: dict[str, Any] | None = None
    ctime: float = 0
    mtime: float = 0
    uuid: str
    serial_no: int
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes which belong together. Who is a member stands in the nodes; `members` is an old key.

    `networks` has the NIC parameters by UUID of each connected network.
    """

    name: str
    members: tuple[str, ...] = ()
    ndparams: dict[str, Any] = parameters(_ND)
    alloc_policy: str
    ipolicy: dict[str, Any]
    diskparams: dict[str, Any]
    networks: dict[str, Any]
    hv_state_static: dict[str, Any] | None = None
    disk_state_static: dict[str, Any] | None = None
    ctime: float = 0
    mtime: float = 0
    uuid: str
    serial_no: int
    tags: tuple[str, ...] = ()
