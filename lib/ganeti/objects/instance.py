"""Instances and their NICs, as stored and as a node gets them."""

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
    """A network card. `network` is the UUID of the network its address is from."""

    mac: str
    ip: str | None = None
    name: str | None = None
    network: str | None = None
    nicparams: dict[str, Any] = parameters(frozenset(net.NIC_PARAM_TYPES))
    uuid: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FilledNic(Nic):
    """A card as a node gets it: all parameters, and the network itself."""

    netinfo: Network | None = None
    pci: int | None = None
    hvinfo: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A guest. Parameters are its own values only; ``fill`` adds what it inherits.

    `primary_node` is a node's UUID, `disks` are UUIDs of disks, in order.
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
    ctime: float = 0
    mtime: float = 0
    uuid: str
    serial_no: int
    tags: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FilledInstance(Instance):
    """An instance as a node gets it: it knows nothing of cluster defaults, so all is filled in."""

    nics: tuple[FilledNic, ...] = ()
    disk_template: str = ""
    disks_info: tuple[Disk, ...] = ()
    secondary_nodes: tuple[str, ...] = ()
