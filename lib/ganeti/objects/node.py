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
class Maintenance:
    """The maintenance of a node, from ``gnt-node maintenance start`` to the end of ``end``.

    The record is what ``end`` brings back. Instances are named by their UUIDs; those which do not
    exist any more are ignored.

    :ivar since: when it began, in seconds since 1970.
    :ivar ready_at: when the node was found to run no guest, so that it may be switched off; None
        while instances still leave.
    :ivar returning: the end has begun, and instances come back.
    :ivar drained: the node was drained before.
    :ivar master_candidate: the node was a master candidate before.
    :ivar primaries: instances which left it and had it as their primary node.
    :ivar secondaries: instances of which a replica left it.
    :ivar stopped: instances which were stopped on it, because they cannot be moved.
    :ivar visitors: instances which left it as well, but which another node in maintenance gets
        back; this one had taken them over.
    :ivar visiting_replicas: the same for replicas.
    """

    since: float
    ready_at: float | None = None
    returning: bool = False
    drained: bool = False
    master_candidate: bool = False
    primaries: tuple[str, ...] = ()
    secondaries: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    visitors: tuple[str, ...] = ()
    visiting_replicas: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FailoverReport:
    """What the automatic failover of instances did about a node, and why not more.

    :ivar at: when, in seconds since 1970.
    :ivar fenced: its machine was certainly off; otherwise nothing was started elsewhere.
    :ivar reason: why the node is not fenced; empty if it is.
    :ivar started: UUIDs of the instances for which a failover was submitted.
    :ivar left: UUID of an instance which was not started elsewhere -> why not.
    """

    at: float
    fenced: bool = False
    reason: str = ""
    started: tuple[str, ...] = ()
    left: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class WatchdogPromise:
    """What a node has promised about its hardware watchdog, or why it has not.

    :ivar token: UUID of the promise; empty for none.
    :ivar timeout_s: the timeout of the device, as it was read back from the driver.
    :ivar reason: why there is no promise.
    :ivar left_at: since when the node may not feed the device any more, in seconds since 1970,
        because its instances are to start elsewhere; None for never.
    """

    token: str = ""
    timeout_s: int = 0
    reason: str = ""
    left_at: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node.

    :ivar group: UUID of its node group.
    :ivar ndparams: only its own values.
    :ivar maintenance: None when the node is not in maintenance.
    :ivar key_pins: the keys which the node may show, as :func:`ganeti.utils.x509.key_pin` names
        them; two while keys are renewed. None as long as no key is known.
    :ivar auto_failover: the last report of the automatic failover of its instances; None when there
        was none since the node became online.
    :ivar watchdog: what is known about its hardware watchdog; None for nothing.
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
    maintenance: Maintenance | None = None
    auto_failover: FailoverReport | None = None
    watchdog: WatchdogPromise | None = None
    ctime: float = 0
    mtime: float = 0
    uuid: str
    serial_no: int
    tags: tuple[str, ...] = ()
    key_pins: tuple[str, ...] | None = None

    def is_left_alone(self) -> bool:
        """Return whether nothing is repaired on the node unasked, because it is in maintenance."""
        return self.maintenance is not None and not self.maintenance.returning

    def restarts_itself(self) -> bool:
        """Return whether its hardware watchdog restarts it when it is cut off."""
        return self.watchdog is not None and bool(self.watchdog.token)

    def may_be_off(self) -> bool:
        """Return whether a maintenance has emptied the machine, so that it may be off."""
        return self.maintenance is not None and self.maintenance.ready_at is not None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """A node group. The nodes name their group; ``members`` is an unused old field.

    :ivar networks: NIC parameters by UUID of each connected network.
    :ivar enabled_hypervisors: the hypervisors of its nodes; None for all of the cluster.
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
    enabled_hypervisors: tuple[str, ...] | None = None
    ctime: float = 0
    mtime: float = 0
    uuid: str
    serial_no: int
    tags: tuple[str, ...] = ()
