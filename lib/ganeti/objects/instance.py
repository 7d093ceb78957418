"""Instances and their NICs, in the form of the configuration and in the form of node calls."""

from __future__ import annotations

import dataclasses
from typing import Any

from ganeti import ht
from ganeti.constants import net
from ganeti.constants.instance import BE_PARAM_TYPES
from ganeti.objects.base import parameters
from ganeti.objects.disk import Disk
from ganeti.objects.network import Network


def _private() -> Any:
    return dataclasses.field(default_factory=ht.PrivateDict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """A NIC.

    :ivar network: UUID of the network to which its addresses belong, or None.
    :ivar ip: its address, which may be one of IPv6, too.
    :ivar ip6: its IPv6 address beside the other one; only in a network with an IPv6 range.
    """

    mac: str
    ip: str | None = None
    ip6: str | None = None
    name: str | None = None
    network: str | None = None
    nicparams: dict[str, Any] = parameters(frozenset(net.NIC_PARAM_TYPES))
    uuid: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FilledNic(Nic):
    """A NIC in node calls, with all parameters and the network object."""

    netinfo: Network | None = None
    pci: int | None = None
    hvinfo: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """An instance. Parameters contain only its own values; ``fill`` adds inherited ones.

    :ivar primary_node: UUID of the primary node.
    :ivar disks: UUIDs of its disks, in order.
    :ivar importing_since: when the import from another cluster, or the copy of an instance, began
        which has not ended, in seconds since 1970; None for all other instances.
    :ivar pending_changes: what the running guest gets only at its next start
        (:mod:`ganeti.cmdlib.ops.params.pending`); None for nothing.
    """

    name: str
    primary_node: str
    os: str
    hypervisor: str
    hvparams: dict[str, Any] = parameters(optional=True)
    beparams: dict[str, Any] = parameters(frozenset(BE_PARAM_TYPES), optional=True)
    osparams: dict[str, Any] = parameters(optional=True)
    osparams_private: ht.PrivateDict = _private()
    admin_state: str
    admin_state_source: str
    nics: tuple[Nic, ...] = ()
    disks: tuple[str, ...] = ()
    disks_active: bool
    network_port: int | None = None
    forthcoming: bool | None = None
    importing_since: float | None = None
    pending_changes: dict[str, Any] | None = None
    ctime: float = 0
    mtime: float = 0
    uuid: str
    serial_no: int
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FilledInstance(Instance):
    """An instance in node calls: all parameters are filled in, because nodes have no defaults."""

    nics: tuple[FilledNic, ...] = ()
    disk_template: str = ""
    disks_info: tuple[Disk, ...] = ()
    secondary_nodes: tuple[str, ...] = ()
