"""The network over which guests talk to their node.

Naming it in a cluster parameter is enough: jobs make the network and connect it to all node groups.
One of that name which exists already is used when it looks the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.constants import cluster as const
from ganeti.constants import metad
from ganeti.opcodes.network import OpNetworkAdd, OpNetworkConnect

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit
    from ganeti.opcodes.base import OpCode


def require_alike(unit: AnyUnit, name: str) -> None:
    """A network of that name can carry the talk between guests and nodes, or there is none yet.

    :raises errors.OpPrereqError: it is another kind of network.
    """
    network = unit.config.network_by_name(name)
    if network is None:
        return
    wrong = [
        f"{what} {has}, not {should}"
        for what, has, should in (
            ("address range", network.network, const.COMMUNICATION_NETWORK4),
            ("IPv6 range", network.network6, const.COMMUNICATION_NETWORK6),
            ("MAC prefix", network.mac_prefix, const.COMMUNICATION_MAC_PREFIX),
        )
        if has != should
    ]
    if wrong:
        raise errors.OpPrereqError(
            f"network {name} exists and cannot be used by guests to talk to their node; it has"
            f" {', '.join(wrong)}",
            errors.ECODE_STATE,
        )


def communication_jobs(unit: AnyUnit, name: str) -> list[list[OpCode]]:
    """Jobs which make the network, when it is missing, and connect the groups that lack it."""
    network = unit.config.network_by_name(name)
    jobs: list[list[OpCode]] = []
    if network is None:
        jobs.append(
            [
                OpNetworkAdd(
                    network_name=name,
                    network=const.COMMUNICATION_NETWORK4,
                    network6=const.COMMUNICATION_NETWORK6,
                    mac_prefix=const.COMMUNICATION_MAC_PREFIX,
                    # The nodes have this one.
                    add_reserved_ips=[metad.ADDRESS],
                    conflicts_check=False,
                )
            ]
        )
    for group in unit.config.groups():
        if network is not None and network.uuid in group.networks:
            continue
        # Counted backwards: the first job makes the network.
        depends = [[-len(jobs), ["success"]]] if network is None else None
        jobs.append(
            [
                OpNetworkConnect(
                    group_name=group.uuid,
                    network_name=name,
                    network_mode=const.COMMUNICATION_MODE,
                    network_link=const.COMMUNICATION_LINK,
                    conflicts_check=False,
                    depends=depends,
                )
            ]
        )
    return jobs
