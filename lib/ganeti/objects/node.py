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
    """A node.

    :ivar group: UUID of its node group.
    :ivar ndparams: only its own values.
    """

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
    # Resources which the administrator set, in place of those which the node reports.
    hv_state_static: dict[str, Any] | None = None
    disk_state_static: dict[str, Any] | None = None
    ctime: float = 0
    mtime: float = 0
    uuid: str
    serial_no: int
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A node group. The nodes name their group; ``members`` is an unused old field.

    :ivar networks: NIC parameters by UUID of each connected network.
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
