"""Adding, removing and modifying NICs of an instance.

The logical unit of ``OP_INSTANCE_SET_PARAMS`` calls :func:`plan`, which checks all changes and
reserves their addresses. The unit itself writes the configuration and hotplugs the NICs.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ganeti import errors
from ganeti.cmdlib.ops.nics import specs as nics
from ganeti.cmdlib.ops.nics.specs import PlannedNic
from ganeti.cmdlib.ops.params import devices
from ganeti.cmdlib.ops.params.devices import DeviceChange
from ganeti.constants.disk import MOD_ADD, MOD_MODIFY, MOD_REMOVE
from ganeti.constants.net import (
    INIC_PARAMS,
    MAX_NICS,
    NIC_MODE_ROUTED,
    NIC_PARAM_TYPES,
    VALUE_DEFAULT,
)
from ganeti.objects import addresses, fill
from ganeti.utils import suggest

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Instance, Nic, Node

WHAT = "network interface"

# Completes a NIC for its node: what it is, for messages, and the NIC.
_Settle = Callable[..., PlannedNic]


@dataclass(frozen=True, slots=True)
class NicStep:
    """One change of a NIC.

    :ivar action: one of the published words ``add``, ``modify``, ``remove``.
    :ivar index: number of the NIC at the moment of the change.
    :ivar nic: the NIC after the change; before it, when it is removed.
    :ivar result: pairs of parameter and new value, which the user is shown.
    """

    action: str
    index: int
    nic: Nic
    result: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class NicPlan:
    """All NICs after the changes, and the changes one by one."""

    nics: tuple[Nic, ...]
    steps: tuple[NicStep, ...]


def plan(
    config: Config,
    instance: Instance,
    node: Node,
    changes: Sequence[DeviceChange],
    *,
    conflicts_check: bool,
) -> NicPlan:
    """Check the changes in order, each with the NICs which the changes before it leave.

    :param node: the primary node of the instance.
    :param conflicts_check: False allows addresses which are in use outside of the cluster.
    :raises errors.OpPrereqError: a change is not possible.
    """
    current = list(instance.nics)
    own = {address for nic in instance.nics for address in addresses.own(nic)}
    settle = functools.partial(
        nics.settled, config, node=node, conflicts_check=conflicts_check, own=own
    )
    steps = []
    for change in changes:
        if change.action == MOD_ADD:
            step = _add(config, settle, current, change)
            current.insert(step.index, step.nic)
        elif change.action == MOD_REMOVE:
            devices.require_no_params(WHAT, change)
            index = devices.find(WHAT, current, change.ident)
            step = NicStep(MOD_REMOVE, index, current.pop(index), ((f"NIC/{index}", "remove"),))
        elif change.action == MOD_MODIFY:
            index = devices.find(WHAT, current, change.ident)
            step = _modify(config, settle, index, current[index], change.params)
            current[index] = step.nic
        else:
            raise errors.OpPrereqError(
                f"there is no action {change.action!r} on a {WHAT}, only add, modify and remove",
                errors.ECODE_INVAL,
            )
        steps.append(step)
    names = [nic.name for nic in current if nic.name]
    for name in names:
        if names.count(name) > 1:
            raise errors.OpPrereqError(f"two {WHAT}s are named {name!r}", errors.ECODE_NOTUNIQUE)
    if steps:
        nics.require_distinct(current)
    return NicPlan(tuple(current), tuple(steps))


def apply(current: list[Nic], step: NicStep) -> None:
    """Carry out one of the changes of a plan on a list of NICs."""
    if step.action == MOD_ADD:
        current.insert(step.index, step.nic)
    elif step.action == MOD_REMOVE:
        del current[step.index]
    else:
        current[step.index] = step.nic


def _add(config: Config, settle: _Settle, current: Sequence[Nic], change: DeviceChange) -> NicStep:
    index = devices.place(WHAT, current, change.ident, MAX_NICS)
    planned = settle(f"{WHAT} {index}", nics.plan_nics(config, [change.params], None)[0])
    nic, filled = planned.nic, planned.filled
    text = (
        f"add:mac={nic.mac},ip={nic.ip},mode={filled['mode']},link={filled['link']},"
        f"network={nic.network}"
    ) + (f",ip6={nic.ip6}" if nic.ip6 else "")
    return NicStep(MOD_ADD, index, nic, ((f"nic.{index}", text),))


def _modify(
    config: Config,
    settle: _Settle,
    index: int,
    present: Nic,
    changes: dict[str, Any],
) -> NicStep:
    unknown = sorted(set(changes) - set(INIC_PARAMS))
    if unknown:
        raise errors.OpPrereqError(
            f"{WHAT} {index}: unknown parameter {', '.join(unknown)}."
            f"{suggest.hint(unknown[0], INIC_PARAMS)}",
            errors.ECODE_INVAL,
        )
    if not changes:
        raise errors.OpPrereqError(f"{WHAT} {index}: no change is given", errors.ECODE_INVAL)
    planned = _changed(config, f"{WHAT} {index}", present, changes)
    addresses_before = (present.network, present.ip, present.ip6)
    if (planned.nic.network, planned.nic.ip, planned.nic.ip6) != addresses_before:
        planned = settle(f"{WHAT} {index}", planned, reserved=[present])
    values = {
        "mac": planned.nic.mac,
        "ip": planned.nic.ip,
        "ip6": planned.nic.ip6,
        "name": planned.nic.name,
        "network": planned.nic.network,
        **{key: planned.filled.get(key) for key in NIC_PARAM_TYPES},
    }
    shown = ["link" if key == "bridge" else key for key in changes]
    result = tuple((f"nic.{key}/{index}", values[key]) for key in shown)
    return NicStep(MOD_MODIFY, index, planned.nic, result)


def _changed(config: Config, what: str, present: Nic, changes: dict[str, Any]) -> PlannedNic:
    """Apply changes to a NIC, except for those which depend on its node."""
    network = (
        nics.requested_network(config, what, changes)
        if "network" in changes
        else None
        if present.network is None
        else config.network(present.network)
    )
    own = dict(present.nicparams)
    if network is None:
        own = {k: v for k, v in own.items() if changes.get(k) != VALUE_DEFAULT}
        own.update(nics.own_parameters(what, changes))
    else:
        contradicting = sorted({*NIC_PARAM_TYPES, "bridge"} & set(changes))
        if contradicting:
            raise errors.OpPrereqError(
                f"{what}: {', '.join(contradicting)} cannot be changed while it is in network"
                f" {network.name}, because the connection of the network to the node group"
                " determines them",
                errors.ECODE_INVAL,
            )
    filled = fill.fill_nic(config.cluster(), own)
    ip = present.ip
    if "ip" in changes:
        ip = nics.checked_address(what, changes["ip"], None, network)
    ip6 = present.ip6 if network is not None else None
    if "ip6" in changes:
        ip6 = nics.checked_ip6(what, changes["ip6"], network)
    if network is None:
        nics.require_mode(what, filled)
        if filled["mode"] == NIC_MODE_ROUTED and ip is None:
            raise errors.OpPrereqError(
                f"{what}: mode {NIC_MODE_ROUTED} needs an IP address", errors.ECODE_INVAL
            )
    mac = present.mac
    if "mac" in changes and changes["mac"] != mac:
        mac = nics.checked_mac(config, what, changes["mac"], network)
    name = present.name
    if "name" in changes:
        name = devices.checked_name(what, changes["name"])
    nic = dataclasses.replace(
        present,
        mac=mac,
        ip=ip,
        ip6=ip6,
        name=name,
        network=None if network is None else network.uuid,
        nicparams=own,
    )
    return PlannedNic(nic, filled)
