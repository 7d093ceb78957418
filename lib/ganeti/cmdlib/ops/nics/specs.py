"""Network interfaces: from the user's dictionaries to objects.

In two steps, because an interface in a network gets its parameters from the group of the node, and
the node may be chosen by an allocator that wants to know the interfaces: :func:`plan_nics` before,
:func:`settle` after.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants.net import (
    MAX_NICS,
    NIC_IP_POOL,
    NIC_MODE_BRIDGED,
    NIC_MODE_OVS,
    NIC_MODE_ROUTED,
    NIC_PARAM_TYPES,
    VALUE_AUTO,
    VALUE_DEFAULT,
    VALUE_GENERATE,
    VALUE_NONE,
)
from ganeti.objects import Nic
from ganeti.objects.address_pool import AddressPool
from ganeti.platform import machine
from ganeti.utils import net

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit
    from ganeti.objects import Instance, Network, Node, NodeGroup

_MAC = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")
_VLAN = re.compile(r"^[.:]?[0-9]+(:[0-9]+)*$")


@dataclass(frozen=True, slots=True)
class PlannedNic:
    """An interface with its own parameters, and the complete ones."""

    nic: Nic
    filled: dict[str, Any]


def plan_nics(
    unit: AnyUnit,
    given: list[dict[str, Any]],
    instance_ip: str | None,
    reserved: Instance | None = None,
) -> list[PlannedNic]:
    """Check the interfaces which the user asked for, and complete them.

    :param instance_ip: address of the instance's name; None when the name was not resolved.
    :param reserved: what had been reserved for the instance; it may use these addresses again.
    :raises errors.OpPrereqError: names the interface and what is wrong with it.
    """
    if len(given) > MAX_NICS:
        raise errors.OpPrereqError(
            f"an instance has at most {MAX_NICS} network interfaces, not {len(given)}",
            errors.ECODE_INVAL,
        )
    planned = [_plan(unit, index, spec, instance_ip, reserved) for index, spec in enumerate(given)]
    names = [p.nic.name for p in planned if p.nic.name]
    for name in names:
        if names.count(name) > 1:
            raise errors.OpPrereqError(
                f"two network interfaces are named {name!r}", errors.ECODE_NOTUNIQUE
            )
    return planned


def reserved_nics(unit: AnyUnit, reserved: Instance | None) -> list[PlannedNic]:
    """The interfaces which were reserved, as they are."""
    if reserved is None:
        return []
    cluster = unit.config.cluster()
    return [PlannedNic(nic, cluster.fill_nic(nic.nicparams)) for nic in reserved.nics]


def _plan(
    unit: AnyUnit,
    index: int,
    spec: Mapping[str, Any],
    instance_ip: str | None,
    reserved: Instance | None,
) -> PlannedNic:
    what = f"network interface {index}"
    network = requested_network(unit, what, spec)
    own = own_parameters(what, spec)
    filled = unit.config.cluster().fill_nic(own)
    if network is None:
        require_mode(what, filled)
    ip = checked_address(what, spec.get("ip"), instance_ip, network)
    # With a network the mode is the one of the group's connection, which settle() checks.
    if network is None and filled["mode"] == NIC_MODE_ROUTED and ip is None:
        raise errors.OpPrereqError(
            f"{what}: mode {NIC_MODE_ROUTED} needs an IP address", errors.ECODE_INVAL
        )
    name = spec.get("name")
    nic = Nic(
        mac=checked_mac(unit, what, spec.get("mac", VALUE_AUTO), network, reserved),
        ip=ip,
        name=None if name in (None, VALUE_NONE, "") else str(name),
        network=None if network is None else network.uuid,
        nicparams=own,
        uuid=unit.config.new_uuid(unit.ctx.ec_id),
    )
    return PlannedNic(nic, filled)


def connection(network_name: str, *, mode: str, link: str, vlan: str) -> dict[str, str]:
    """How interfaces in a network are attached to a node, as a node group keeps it.

    :raises errors.OpPrereqError: names the network and what is wrong.
    """
    what = f"network {network_name}"
    own = own_parameters(what, {"mode": mode, "link": link, "vlan": vlan})
    require_mode(what, own)
    return {key: own.get(key, "") for key in NIC_PARAM_TYPES}


def require_mode(what: str, filled: Mapping[str, Any]) -> None:
    """The complete parameters of an interface fit together."""
    mode = filled["mode"]
    if mode not in machine.current().nic_modes():
        raise errors.OpPrereqError(
            f"{what}: mode {mode!r} is not one of {', '.join(machine.current().nic_modes())}",
            errors.ECODE_INVAL,
        )
    if filled.get("vlan") and mode not in (NIC_MODE_BRIDGED, NIC_MODE_OVS):
        raise errors.OpPrereqError(
            f"{what}: a VLAN needs mode {NIC_MODE_BRIDGED} or {NIC_MODE_OVS}, not {mode}",
            errors.ECODE_INVAL,
        )
    if mode in (NIC_MODE_BRIDGED, NIC_MODE_OVS) and not filled.get("link"):
        raise errors.OpPrereqError(f"{what}: mode {mode} needs a link", errors.ECODE_INVAL)


def requested_network(unit: AnyUnit, what: str, spec: Mapping[str, Any]) -> Network | None:
    """The network which the interface is to be in."""
    given = spec.get("network")
    if given in (None, "", VALUE_NONE):
        return None
    contradicting = sorted(
        key for key in (*NIC_PARAM_TYPES, "bridge") if spec.get(key) not in (None, VALUE_DEFAULT)
    )
    if contradicting:
        raise errors.OpPrereqError(
            f"{what}: {', '.join(contradicting)} cannot be given together with a network, whose"
            " connection to the node group says them",
            errors.ECODE_INVAL,
        )
    return unit.config.expand_network(str(given))


# -- networks, once the node is known -----------------------------------------------------------


def settle(
    unit: AnyUnit,
    planned: Iterable[PlannedNic],
    node: Node,
    *,
    conflicts_check: bool,
    reserved: Instance | None = None,
) -> list[PlannedNic]:
    """Complete interfaces which are in networks, now that their node is known.

    Such an interface has the parameters with which the network is connected to the node's group.
    The address ``pool`` becomes the network's first free one; a given one is reserved. An address
    of a network connected to the group is refused for an interface outside of it.

    :param conflicts_check: False lets addresses pass which somebody outside of the cluster has, or
        which belong to another network.
    :param reserved: see :func:`plan_nics`.
    :raises errors.OpPrereqError: names the interface and what is wrong with it.
    """
    return [
        settled(
            unit,
            f"network interface {index}",
            nic,
            node,
            conflicts_check=conflicts_check,
            reserved=reserved,
        )
        for index, nic in enumerate(planned)
    ]


def settled(
    unit: AnyUnit,
    what: str,
    planned: PlannedNic,
    node: Node,
    *,
    conflicts_check: bool,
    reserved: Instance | None = None,
) -> PlannedNic:
    """The same for one interface.

    :param what: the interface, for errors.
    """
    nic = planned.nic
    group = unit.config.group(node.group)
    if nic.network is None:
        if conflicts_check and nic.ip is not None:
            _require_foreign(unit, what, nic.ip, group)
        return planned
    network = unit.config.network(nic.network)
    connection = group.networks.get(network.uuid)
    if connection is None:
        raise errors.OpPrereqError(
            f"{what}: network {network.name} is not connected to node group {group.name} of node"
            f" {node.name}. Use 'gnt-network connect'.",
            errors.ECODE_INVAL,
        )
    filled = unit.config.cluster().fill_nic(connection)
    require_mode(what, filled)
    ip = nic.ip
    had = (
        ()
        if reserved is None
        else ((reserved_nic.network, reserved_nic.ip) for reserved_nic in reserved.nics)
    )
    if (network.uuid, ip) not in had:
        ip = _from_pool(unit, what, ip, network, conflicts_check=conflicts_check)
    if filled["mode"] == NIC_MODE_ROUTED and ip is None:
        raise errors.OpPrereqError(
            f"{what}: network {network.name} is routed in node group {group.name} and needs an IP"
            f" address, such as ip={NIC_IP_POOL}",
            errors.ECODE_INVAL,
        )
    return PlannedNic(replace(nic, ip=ip, nicparams=dict(connection)), filled)


def _require_foreign(unit: AnyUnit, what: str, ip: str, group: NodeGroup) -> None:
    if net.is_ipv4(ip):
        for uuid in group.networks:
            network = unit.config.network(uuid)
            if ip in AddressPool(network):
                raise errors.OpPrereqError(
                    f"{what}: address {ip} belongs to network {network.name}, which the interface"
                    " is not in. Add network=..., or use --no-conflicts-check.",
                    errors.ECODE_STATE,
                )


def _from_pool(
    unit: AnyUnit, what: str, ip: str | None, network: Network, *, conflicts_check: bool
) -> str | None:
    if ip is None:
        return None
    try:
        if ip == NIC_IP_POOL:
            return unit.config.generate_ip(network.uuid, unit.ctx.ec_id)
        if net.is_ipv4(ip):
            unit.config.reserve_ip(
                network.uuid, ip, unit.ctx.ec_id, external_ok=not conflicts_check
            )
        return ip
    except errors.ReservationError as err:
        raise errors.OpPrereqError(
            f"{what}: address {ip} of network {network.name} is already in use, or reserved",
            errors.ECODE_NOTUNIQUE,
        ) from err
    except errors.AddressPoolError as err:
        raise errors.OpPrereqError(
            f"{what}: {err}",
            errors.ECODE_NORES if ip == NIC_IP_POOL else errors.ECODE_INVAL,
        ) from err


# -- one thing after the other -------------------------------------------------------------------


def own_parameters(what: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters which a spec names; ``default`` is none, ``bridge`` is the older ``link``."""
    own = {
        key: str(spec[key]) for key in NIC_PARAM_TYPES if spec.get(key) not in (None, VALUE_DEFAULT)
    }
    bridge = spec.get("bridge")
    if bridge is not None:
        if "link" in own:
            raise errors.OpPrereqError(
                f"{what}: bridge and link say the same thing, only one may be given",
                errors.ECODE_INVAL,
            )
        own["link"] = str(bridge)
    vlan = own.get("vlan")
    if vlan and not _VLAN.match(vlan):
        raise errors.OpPrereqError(
            f"{what}: {vlan!r} is not a VLAN like 7, .7, :7:8 or .7:8", errors.ECODE_INVAL
        )
    return own


def checked_address(
    what: str, spec: Any, instance_ip: str | None, network: Network | None
) -> str | None:
    """The address which a spec means; ``pool`` is settled later."""
    if spec in (None, "", VALUE_NONE):
        return None
    if spec == NIC_IP_POOL:
        if network is None:
            raise errors.OpPrereqError(
                f"{what}: address {NIC_IP_POOL!r} is one of a network, and none is given. Add"
                " network=...",
                errors.ECODE_INVAL,
            )
        return NIC_IP_POOL
    if spec == VALUE_AUTO:
        if instance_ip is None:
            raise errors.OpPrereqError(
                f"{what}: address {VALUE_AUTO!r} is the one of the instance's name, which is not"
                " resolved."
                " Ask for the name check.",
                errors.ECODE_INVAL,
            )
        return instance_ip
    if not net.is_ip(str(spec)):
        raise errors.OpPrereqError(f"{what}: {spec!r} is not an IP address", errors.ECODE_INVAL)
    return str(spec)


def checked_mac(
    unit: AnyUnit,
    what: str,
    spec: Any,
    network: Network | None,
    reserved: Instance | None = None,
) -> str:
    """A free MAC address, generated or the one that is wished for; it is reserved.

    :param reserved: an instance whose addresses count as free.
    """
    if spec in (None, VALUE_AUTO, VALUE_GENERATE):
        prefix = None if network is None else network.mac_prefix
        return unit.config.generate_mac(unit.ctx.ec_id, prefix)
    mac = str(spec).lower().replace("-", ":")
    if not _MAC.match(mac) or int(mac[:2], 16) & 1:
        raise errors.OpPrereqError(
            f"{what}: {spec!r} is not a unicast MAC address like aa:00:00:12:34:56",
            errors.ECODE_INVAL,
        )
    if reserved is not None and mac in (nic.mac.lower() for nic in reserved.nics):
        return mac
    try:
        unit.config.reserve_mac(mac, unit.ctx.ec_id)
    except errors.ReservationError as err:
        raise errors.OpPrereqError(
            f"{what}: MAC address {mac} is already in use", errors.ECODE_NOTUNIQUE
        ) from err
    return mac
