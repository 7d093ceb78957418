"""Specs of NICs: from the dictionaries which users give to NIC objects.

Two steps are needed, because a NIC in a network gets its parameters from the node group of its
node, and an allocator which chooses the node has to be sent the NICs: :func:`plan_nics` before the
node is known, :func:`settle` after it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.ops.params import devices
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
from ganeti.objects import Nic, addresses, fill
from ganeti.objects.address_pool import AddressPool
from ganeti.platform import machine
from ganeti.utils import net

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Instance, Network, Node, NodeGroup

_MAC = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")
_VLAN = re.compile(r"^[.:]?[0-9]+(:[0-9]+)*$")


@dataclass(frozen=True, slots=True)
class PlannedNic:
    """A NIC with its own parameters, and ``filled``, its parameters with all defaults."""

    nic: Nic
    filled: dict[str, Any]


def plan_nics(
    config: Config,
    given: list[dict[str, Any]],
    instance_ip: str | None,
    reserved: Instance | None = None,
) -> list[PlannedNic]:
    """Check and complete the specs of NICs; reserves their MAC addresses.

    :param given: specs as the user gave them.
    :param instance_ip: address to which the instance's name resolves; None without name check.
    :param reserved: the forthcoming instance, whose MAC addresses may be used again.
    :raises errors.OpPrereqError: a spec is wrong; names the NIC.
    """
    if len(given) > MAX_NICS:
        raise errors.OpPrereqError(
            f"an instance has at most {MAX_NICS} network interfaces, not {len(given)}",
            errors.ECODE_INVAL,
        )
    planned = [
        _plan(config, index, spec, instance_ip, reserved) for index, spec in enumerate(given)
    ]
    names = [p.nic.name for p in planned if p.nic.name]
    for name in names:
        if names.count(name) > 1:
            raise errors.OpPrereqError(
                f"two network interfaces are named {name!r}", errors.ECODE_NOTUNIQUE
            )
    return planned


def reserved_nics(config: Config, reserved: Instance | None) -> list[PlannedNic]:
    """Return the NICs which were reserved for a forthcoming instance; none for another one."""
    if reserved is None:
        return []
    cluster = config.cluster()
    return [PlannedNic(nic, fill.fill_nic(cluster, nic.nicparams)) for nic in reserved.nics]


def _plan(
    config: Config,
    index: int,
    spec: Mapping[str, Any],
    instance_ip: str | None,
    reserved: Instance | None,
) -> PlannedNic:
    what = f"network interface {index}"
    network = requested_network(config, what, spec)
    own = own_parameters(what, spec)
    filled = fill.fill_nic(config.cluster(), own)
    if network is None:
        require_mode(what, filled)
    ip = checked_address(what, spec.get("ip"), instance_ip, network)
    ip6 = checked_ip6(what, spec.get("ip6"), network)
    # The mode of a NIC in a network is the one of the group's connection, which settle() checks.
    if network is None and filled["mode"] == NIC_MODE_ROUTED and ip is None:
        raise errors.OpPrereqError(
            f"{what}: mode {NIC_MODE_ROUTED} needs an IP address", errors.ECODE_INVAL
        )
    nic = Nic(
        mac=checked_mac(config, what, spec.get("mac", VALUE_AUTO), network, reserved),
        ip=ip,
        ip6=ip6,
        name=devices.checked_name(what, spec.get("name")),
        network=None if network is None else network.uuid,
        nicparams=own,
        uuid=config.new_uuid(),
    )
    return PlannedNic(nic, filled)


def connection(network_name: str, *, mode: str, link: str, vlan: str) -> dict[str, str]:
    """Make the parameters with which a network is connected to a node group.

    :returns: mode, link and VLAN of all NICs in the network.
    :raises errors.OpPrereqError: a parameter is wrong; names the network.
    """
    what = f"network {network_name}"
    own = own_parameters(what, {"mode": mode, "link": link, "vlan": vlan})
    require_mode(what, own)
    return {key: own.get(key, "") for key in NIC_PARAM_TYPES}


def require_mode(what: str, filled: Mapping[str, Any]) -> None:
    """Check that the complete parameters of a NIC do not contradict each other.

    :param what: the NIC or the network, for error messages.
    :raises errors.OpPrereqError: the mode is unknown or contradicts link or VLAN.
    """
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


def requested_network(config: Config, what: str, spec: Mapping[str, Any]) -> Network | None:
    """Return the network which the spec of a NIC names; None without one.

    :raises errors.OpPrereqError: the network is unknown, or the spec has parameters which the
        network determines.
    """
    given = spec.get("network")
    if given in (None, "", VALUE_NONE):
        return None
    contradicting = sorted(
        key for key in (*NIC_PARAM_TYPES, "bridge") if spec.get(key) not in (None, VALUE_DEFAULT)
    )
    if contradicting:
        raise errors.OpPrereqError(
            f"{what}: {', '.join(contradicting)} cannot be used together with a network, because"
            " the connection of the network to the node group determines them",
            errors.ECODE_INVAL,
        )
    return config.expand_network(str(given))


# -- networks, once the node is known -----------------------------------------------------------


def settle(
    config: Config,
    planned: Iterable[PlannedNic],
    node: Node,
    *,
    conflicts_check: bool,
    reserved: Instance | None = None,
) -> list[PlannedNic]:
    """Complete NICs which are in networks when their node is known; reserves their IP addresses.

    A NIC in a network gets the parameters with which the network is connected to the node's group.
    The address ``pool`` becomes the first free address of the network; any other address is
    reserved. A NIC outside of a network must not have an address of a network which is connected to
    the group. No NIC gets an address which a node or the cluster has at this moment.

    :param conflicts_check: False allows addresses which are in use outside of the cluster, which
        belong to another network, or which nodes and the cluster have.
    :param reserved: the forthcoming instance, whose IP addresses may be used again.
    :raises errors.OpPrereqError: a NIC is not possible on the node; names the NIC.
    """
    found = [
        settled(
            config,
            f"network interface {index}",
            nic,
            node,
            conflicts_check=conflicts_check,
            reserved=() if reserved is None else reserved.nics,
        )
        for index, nic in enumerate(planned)
    ]
    require_distinct([one.nic for one in found])
    return found


def require_distinct(nics: Iterable[Nic]) -> None:
    """Check that no two NICs of an instance have one address.

    A reservation does not notice that: it keeps a value for the whole operation.

    :raises errors.OpPrereqError: two have the same MAC address, or the same address of a network.
    """
    seen: set[tuple[str | None, str]] = set()
    for nic in nics:
        values: list[tuple[str | None, str]] = [(None, f"MAC address {nic.mac.lower()}")]
        if nic.network is not None:
            values += [(nic.network, f"address {address}") for address in addresses.own(nic)]
        for value in values:
            if value in seen:
                raise errors.OpPrereqError(
                    f"two network interfaces of the instance have {value[1]}",
                    errors.ECODE_NOTUNIQUE,
                )
            seen.add(value)


def settled(
    config: Config,
    what: str,
    planned: PlannedNic,
    node: Node,
    *,
    conflicts_check: bool,
    reserved: Collection[Nic] = (),
    own: Collection[str] = (),
) -> PlannedNic:
    """Complete one NIC when its node is known.

    :param what: the NIC, for error messages. The other parameters are those of :func:`settle`.
    :param reserved: NICs of the instance whose addresses this one may have again.
    :param own: the addresses which the instance has already.
    """
    nic = planned.nic
    group = config.group(node.group)
    if nic.network is None:
        if conflicts_check and nic.ip is not None:
            _require_foreign(config, what, nic.ip, group)
            _require_nobodys(what, nic.ip, addresses.of_cluster(config.snapshot()))
        return planned
    network = config.network(nic.network)
    connection = group.networks.get(network.uuid)
    if connection is None:
        raise errors.OpPrereqError(
            f"{what}: network {network.name} is not connected to node group {group.name} of node"
            f" {node.name}. Use 'gnt-network connect'.",
            errors.ECODE_INVAL,
        )
    filled = fill.fill_nic(config.cluster(), connection)
    require_mode(what, filled)
    had = {(one.network, address) for one in reserved for address in addresses.own(one)}
    found: dict[str, Any] = {"ip": nic.ip, "ip6": nic.ip6}
    for kind, ip in found.items():
        if ip is None or (network.uuid, ip) in had:
            continue
        avoid = {
            address: owner
            for address, owner in _elsewhere(config, network, conflicts_check).items()
            if address not in own
        }
        found[kind] = _from_pool(
            config, what, ip, network, avoid, external_ok=not conflicts_check, ip6=kind == "ip6"
        )
    if filled["mode"] == NIC_MODE_ROUTED and not any(found.values()):
        raise errors.OpPrereqError(
            f"{what}: network {network.name} is routed in node group {group.name} and needs an IP"
            f" address, such as ip={NIC_IP_POOL}",
            errors.ECODE_INVAL,
        )
    return PlannedNic(replace(nic, **found, nicparams=dict(connection)), filled)


def _require_foreign(config: Config, what: str, ip: str, group: NodeGroup) -> None:
    if net.is_ipv4(ip):
        for uuid in group.networks:
            network = config.network(uuid)
            if ip in AddressPool(network):
                raise errors.OpPrereqError(
                    f"{what}: address {ip} belongs to network {network.name}, but the interface is"
                    " not in this network. Add network=..., or use --no-conflicts-check.",
                    errors.ECODE_STATE,
                )


def _elsewhere(config: Config, network: Network, conflicts_check: bool) -> dict[str, str]:
    """Return who has an address of which the pool of a network knows nothing."""
    if network.isolated or not conflicts_check:
        return {}
    data = config.snapshot()
    return {**addresses.outside_network(data, network), **addresses.of_cluster(data)}


def _require_nobodys(what: str, ip: str, owners: Mapping[str, str]) -> None:
    owner = owners.get(addresses.same_form(ip))
    if owner is not None:
        raise errors.OpPrereqError(
            f"{what}: address {ip} is the one of {owner}. Choose another one, or use"
            " --no-conflicts-check.",
            errors.ECODE_NOTUNIQUE,
        )


def _from_pool(
    config: Config,
    what: str,
    ip: str,
    network: Network,
    avoid: Mapping[str, str],
    *,
    external_ok: bool,
    ip6: bool,
) -> str:
    try:
        if ip == NIC_IP_POOL:
            generate = config.generate_ip6 if ip6 else config.generate_ip
            return generate(network.uuid, avoid)
        config.reserve_ip(network.uuid, ip, external_ok=external_ok)
        _require_nobodys(what, ip, avoid)
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


# -- parts of a spec -----------------------------------------------------------------------------


def own_parameters(what: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return mode, link and VLAN from the spec of a NIC, as far as it has them.

    ``bridge`` is the old name of ``link``; the value ``default`` counts as absent.

    :raises errors.OpPrereqError: bridge and link are both there, or the VLAN has a wrong form.
    """
    own = {
        key: str(spec[key]) for key in NIC_PARAM_TYPES if spec.get(key) not in (None, VALUE_DEFAULT)
    }
    bridge = spec.get("bridge")
    if bridge is not None:
        if "link" in own:
            raise errors.OpPrereqError(
                f"{what}: bridge is the old name of link, so only one of them may be used",
                errors.ECODE_INVAL,
            )
        own["link"] = str(bridge)
    vlan = own.get("vlan")
    if vlan and not _VLAN.fullmatch(vlan):
        raise errors.OpPrereqError(
            f"{what}: {vlan!r} is not a VLAN like 7, .7, :7:8 or .7:8", errors.ECODE_INVAL
        )
    return own


def checked_address(
    what: str, spec: Any, instance_ip: str | None, network: Network | None
) -> str | None:
    """Check the IP address in the spec of a NIC; ``pool`` stays until :func:`settle`.

    :param instance_ip: address to which the instance's name resolves; None without name check.
    :raises errors.OpPrereqError: the address is wrong, or not possible here.
    """
    if spec in (None, "", VALUE_NONE):
        return None
    if spec == NIC_IP_POOL:
        if network is None:
            raise errors.OpPrereqError(
                f"{what}: address {NIC_IP_POOL!r} needs a network. Add network=...",
                errors.ECODE_INVAL,
            )
        return NIC_IP_POOL
    if spec == VALUE_AUTO:
        if instance_ip is None:
            raise errors.OpPrereqError(
                f"{what}: address {VALUE_AUTO!r} is the address of the instance's name, which was"
                " not resolved. Turn the name check on.",
                errors.ECODE_INVAL,
            )
        return instance_ip
    if not net.is_ip(str(spec)):
        raise errors.OpPrereqError(f"{what}: {spec!r} is not an IP address", errors.ECODE_INVAL)
    return addresses.same_form(str(spec))


def checked_ip6(what: str, spec: Any, network: Network | None) -> str | None:
    """Check the IPv6 address in the spec of a NIC, beside its other one; ``pool`` stays.

    :raises errors.OpPrereqError: the address is wrong, or the NIC is in no network.
    """
    if spec in (None, "", VALUE_NONE):
        return None
    if network is None:
        raise errors.OpPrereqError(
            f"{what}: an address ip6 needs a network with an IPv6 range. Add network=...",
            errors.ECODE_INVAL,
        )
    if spec == NIC_IP_POOL:
        return NIC_IP_POOL
    if not net.is_ipv6(str(spec)):
        raise errors.OpPrereqError(f"{what}: {spec!r} is not an IPv6 address", errors.ECODE_INVAL)
    return addresses.same_form(str(spec))


def checked_mac(
    config: Config,
    what: str,
    spec: Any,
    network: Network | None,
    reserved: Instance | None = None,
) -> str:
    """Reserve the MAC address in the spec of a NIC, or generate and reserve one.

    :param reserved: the forthcoming instance, whose MAC addresses may be used again.
    :raises errors.OpPrereqError: the address is wrong or in use.
    """
    if spec in (None, VALUE_AUTO, VALUE_GENERATE):
        prefix = None if network is None else network.mac_prefix
        return config.generate_mac(prefix)
    mac = str(spec).lower().replace("-", ":")
    if not _MAC.fullmatch(mac) or int(mac[:2], 16) & 1:
        raise errors.OpPrereqError(
            f"{what}: {spec!r} is not a unicast MAC address like aa:00:00:12:34:56",
            errors.ECODE_INVAL,
        )
    if reserved is not None and mac in (nic.mac.lower() for nic in reserved.nics):
        return mac
    try:
        config.reserve_mac(mac)
    except errors.ReservationError as err:
        raise errors.OpPrereqError(
            f"{what}: MAC address {mac} is already in use", errors.ECODE_NOTUNIQUE
        ) from err
    return mac
