"""Network interfaces of a new instance: from the user's dictionaries to objects."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.constants.net import (
    MAX_NICS,
    NIC_IP_POOL,
    NIC_MODE_BRIDGED,
    NIC_MODE_OVS,
    NIC_MODE_ROUTED,
    NIC_MODE_USER,
    NIC_MODES,
    NIC_PARAM_TYPES,
    VALUE_AUTO,
    VALUE_DEFAULT,
    VALUE_GENERATE,
    VALUE_NONE,
)
from ganeti.objects import Nic
from ganeti.utils import net, paths

if TYPE_CHECKING:
    from ganeti.cmdlib.base import LogicalUnit

#: Modes which an interface may have; the mode of address pools is never stored.
MODES = frozenset(NIC_MODES) - {NIC_IP_POOL}

_MAC = re.compile(r"^[0-9a-f]{2}(:[0-9a-f]{2}){5}$")
_VLAN = re.compile(r"^[.:]?[0-9]+(:[0-9]+)*$")


@dataclass(frozen=True, slots=True)
class PlannedNic:
    """An interface with its own parameters, and the complete ones."""

    nic: Nic
    filled: dict[str, Any]


def modes() -> frozenset[str]:
    """NIC modes which may be used here; ``user`` (QEMU's own network) only in a virtual cluster."""
    return MODES | {NIC_MODE_USER} if paths.is_virtual() else MODES


def plan_nics(
    unit: LogicalUnit, given: list[dict[str, Any]], instance_ip: str | None
) -> list[PlannedNic]:
    """Check the interfaces which the user asked for, and complete them.

    :param instance_ip: address of the instance's name; None when the name was not resolved.
    :raises errors.OpPrereqError: names the interface and what is wrong with it.
    """
    if len(given) > MAX_NICS:
        raise errors.OpPrereqError(
            f"an instance has at most {MAX_NICS} network interfaces, not {len(given)}",
            errors.ECODE_INVAL,
        )
    planned = [_plan(unit, index, wish, instance_ip) for index, wish in enumerate(given)]
    names = [p.nic.name for p in planned if p.nic.name]
    for name in names:
        if names.count(name) > 1:
            raise errors.OpPrereqError(
                f"two network interfaces are named {name!r}", errors.ECODE_NOTUNIQUE
            )
    return planned


def _plan(
    unit: LogicalUnit, index: int, wish: Mapping[str, Any], instance_ip: str | None
) -> PlannedNic:
    what = f"network interface {index}"
    if wish.get("network") not in (None, "", VALUE_NONE):
        raise errors.OpPrereqError(
            f"{what}: network {wish['network']!r} cannot be used, attaching to networks is not"
            " part of"
            " this version",
            errors.ECODE_INVAL,
        )
    own = _parameters(what, wish)
    filled = unit.config.cluster().fill_nic(own)
    mode = filled["mode"]
    if mode not in modes():
        raise errors.OpPrereqError(
            f"{what}: mode {mode!r} is not one of {', '.join(sorted(modes()))}", errors.ECODE_INVAL
        )
    if filled.get("vlan") and mode not in (NIC_MODE_BRIDGED, NIC_MODE_OVS):
        raise errors.OpPrereqError(
            f"{what}: a VLAN needs mode {NIC_MODE_BRIDGED} or {NIC_MODE_OVS}, not {mode}",
            errors.ECODE_INVAL,
        )
    if mode in (NIC_MODE_BRIDGED, NIC_MODE_OVS) and not filled.get("link"):
        raise errors.OpPrereqError(f"{what}: mode {mode} needs a link", errors.ECODE_INVAL)
    ip = _address(what, wish.get("ip"), instance_ip)
    if mode == NIC_MODE_ROUTED and ip is None:
        raise errors.OpPrereqError(
            f"{what}: mode {NIC_MODE_ROUTED} needs an IP address", errors.ECODE_INVAL
        )
    name = wish.get("name")
    nic = Nic(
        mac=_mac(unit, what, wish.get("mac", VALUE_AUTO)),
        ip=ip,
        name=None if name in (None, VALUE_NONE, "") else str(name),
        network=None,
        nicparams=own,
        uuid=unit.config.new_uuid(unit.ctx.ec_id),
    )
    return PlannedNic(nic, filled)


def _parameters(what: str, wish: Mapping[str, Any]) -> dict[str, Any]:
    own = {
        key: str(wish[key]) for key in NIC_PARAM_TYPES if wish.get(key) not in (None, VALUE_DEFAULT)
    }
    bridge = wish.get("bridge")
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


def _address(what: str, wish: Any, instance_ip: str | None) -> str | None:
    if wish in (None, "", VALUE_NONE):
        return None
    if wish == VALUE_AUTO:
        if instance_ip is None:
            raise errors.OpPrereqError(
                f"{what}: address {VALUE_AUTO!r} is the one of the instance's name, which is not"
                " resolved."
                " Ask for the name check.",
                errors.ECODE_INVAL,
            )
        return instance_ip
    if not net.is_ip(str(wish)):
        raise errors.OpPrereqError(f"{what}: {wish!r} is not an IP address", errors.ECODE_INVAL)
    return str(wish)


def _mac(unit: LogicalUnit, what: str, wish: Any) -> str:
    if wish in (None, VALUE_AUTO, VALUE_GENERATE):
        return unit.config.generate_mac(unit.ctx.ec_id)
    mac = str(wish).lower().replace("-", ":")
    if not _MAC.match(mac) or int(mac[:2], 16) & 1:
        raise errors.OpPrereqError(
            f"{what}: {wish!r} is not a unicast MAC address like aa:00:00:12:34:56",
            errors.ECODE_INVAL,
        )
    try:
        unit.config.reserve_mac(mac, unit.ctx.ec_id)
    except errors.ReservationError as err:
        raise errors.OpPrereqError(
            f"{what}: MAC address {mac} is already in use", errors.ECODE_NOTUNIQUE
        ) from err
    return mac
