"""The communication NIC, through which a guest talks to its node (manual page **gnt-instance**)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import Context, why
from ganeti.cmdlib.ops.params.devices import END, DeviceChange
from ganeti.cmdlib.prereq import ADMIN_UP
from ganeti.constants.disk import MOD_ADD, MOD_REMOVE
from ganeti.constants.metad import NIC_PREFIX
from ganeti.constants.net import NIC_IP_POOL
from ganeti.metad import describe
from ganeti.objects import fill
from ganeti.wire.calls import INSTANCE_METADATA_MODIFY

if TYPE_CHECKING:
    from typing import Any

    from ganeti.config import Config
    from ganeti.objects import Instance


def nic_name(instance_name: str) -> str:
    """Return the name of the communication NIC of an instance."""
    return f"{NIC_PREFIX}{instance_name}"


def nic_spec(config: Config, instance_name: str) -> dict[str, Any]:
    """Make the spec of a communication NIC.

    :raises errors.OpPrereqError: the cluster has no network for communication.
    """
    network = config.cluster().instance_communication_network
    if not network:
        raise errors.OpPrereqError(
            "the cluster has no network over which guests talk to their nodes. Name one with"
            " 'gnt-cluster modify --instance-communication-network'.",
            errors.ECODE_STATE,
        )
    return {"name": nic_name(instance_name), "network": network, "ip": NIC_IP_POOL}


def send_metadata(ctx: Context, before: Instance, after: Instance) -> None:
    """Send changed metadata to the node of a running instance; a failure is a warning.

    The metadata has no secret OS parameters, because only an installation knows them.
    """

    def metadata(instance: Instance) -> tuple[object, ...]:
        return (instance.os, instance.nics, instance.osparams, instance.osparams_private)

    if (
        after.admin_state != ADMIN_UP
        or not describe.talks(after)
        or metadata(before) == metadata(after)
    ):
        return
    cluster = ctx.config.cluster()
    answer = ctx.rpc.call(
        INSTANCE_METADATA_MODIFY,
        after.primary_node,
        instance=describe.describe(
            after,
            public=fill.fill_osparams(cluster, after.os, after.osparams),
            private=fill.fill_osparams_private(cluster, after.os, after.osparams_private),
            secret={},
        ),
    )
    if answer.failure is not None:
        ctx.log.warn(
            f"the guest of instance {after.name} gets its new metadata only at its next start:"
            f" {why(answer.failure)}"
        )


def changes(config: Config, instance: Instance, wanted: bool) -> list[DeviceChange]:
    """Make the changes which add a communication NIC to an instance, or remove it."""
    name = nic_name(instance.name)
    present = [nic for nic in instance.nics if nic.name == name]
    if wanted and not present:
        return [DeviceChange(MOD_ADD, END, nic_spec(config, instance.name))]
    if not wanted and present:
        return [DeviceChange(MOD_REMOVE, present[0].uuid, {})]
    return []
