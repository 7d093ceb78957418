"""The interface through which a guest talks to its node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ganeti import errors
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.ops.params.devices import END, Change
from ganeti.cmdlib.prereq import ADMIN_UP
from ganeti.constants.disk import MOD_ADD, MOD_REMOVE
from ganeti.constants.metad import NIC_PREFIX
from ganeti.constants.net import NIC_IP_POOL
from ganeti.metad import describe
from ganeti.objects import fill
from ganeti.wire.calls import INSTANCE_METADATA_MODIFY

if TYPE_CHECKING:
    from typing import Any

    from ganeti.objects import Instance


def nic_name(instance_name: str) -> str:
    """Name of the interface."""
    return f"{NIC_PREFIX}{instance_name}"


def nic_spec(unit: AnyUnit, instance_name: str) -> dict[str, Any]:
    """The interface as a new one is asked for.

    :raises errors.OpPrereqError: the cluster has no network for it.
    """
    network = unit.config.cluster().instance_communication_network
    if not network:
        raise errors.OpPrereqError(
            "the cluster has no network over which guests talk to their nodes. Name one with"
            " 'gnt-cluster modify --instance-communication-network'.",
            errors.ECODE_STATE,
        )
    return {"name": nic_name(instance_name), "network": network, "ip": NIC_IP_POOL}


def send_metadata(unit: AnyUnit, before: Instance, after: Instance) -> None:
    """Let the guest of an instance that runs learn what was changed; that it cannot is a warning.

    Secret parameters are known to an installation only, so there are none.
    """

    def metadata(instance: Instance) -> tuple[object, ...]:
        return (instance.os, instance.nics, instance.osparams, instance.osparams_private)

    if (
        after.admin_state != ADMIN_UP
        or not describe.talks(after)
        or metadata(before) == metadata(after)
    ):
        return
    cluster = unit.config.cluster()
    answer = unit.rpc.call(
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
        unit.warn(
            f"the guest of {after.name} does not learn what was changed before its next"
            f" start: {why(answer.failure)}"
        )


def changes(unit: AnyUnit, instance: Instance, wanted: bool) -> list[Change]:
    """Changes which give an instance the interface, or take it away."""
    name = nic_name(instance.name)
    present = [nic for nic in instance.nics if nic.name == name]
    if wanted and not present:
        return [Change(MOD_ADD, END, nic_spec(unit, instance.name))]
    if not wanted and present:
        return [Change(MOD_REMOVE, present[0].uuid, {})]
    return []
