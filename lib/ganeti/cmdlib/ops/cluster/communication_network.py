"""The instance communication network, over which guests talk to their node.

When the cluster parameter ``instance_communication_network`` is set, jobs create the network and
connect it to all node groups. An existing network of this name is used if it has the same
parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.constants import cluster as const
from ganeti.constants import metad
from ganeti.opcodes.network import OpNetworkAdd, OpNetworkConnect

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.opcodes.base import OpCode


def require_alike(config: Config, name: str) -> None:
    """Check that a network, if it exists, can be the instance communication network.

    :raises errors.OpPrereqError: the network has other parameters.
    """
    network = config.network_by_name(name)
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
            f"network {name} exists and cannot be the instance communication network; it has"
            f" {', '.join(wrong)}",
            errors.ECODE_STATE,
        )


def communication_jobs(config: Config, name: str) -> list[list[OpCode]]:
    """Make the jobs which create the network, if it is missing, and connect it to all groups."""
    network = config.network_by_name(name)
    jobs: list[list[OpCode]] = []
    if network is None:
        jobs.append(
            [
                OpNetworkAdd(
                    network_name=name,
                    network=const.COMMUNICATION_NETWORK4,
                    network6=const.COMMUNICATION_NETWORK6,
                    mac_prefix=const.COMMUNICATION_MAC_PREFIX,
                    # This is the address of the nodes.
                    add_reserved_ips=[metad.ADDRESS],
                    conflicts_check=False,
                )
            ]
        )
    for group in config.groups():
        if network is not None and network.uuid in group.networks:
            continue
        # Relative job number: each job depends on the first one, which creates the network.
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
