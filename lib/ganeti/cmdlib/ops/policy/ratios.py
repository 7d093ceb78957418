"""Policy ratios: how many virtual CPUs and spindles the instances of a node may use together.

``vcpu-ratio`` limits the virtual CPUs of the primary instances and of the node itself, for each
processor which the node reports. ``spindle-ratio`` limits the spindle use of all instances whose
disks are logical volumes of the node, for each of its spindles; with exclusive storage, spindles
are not shared and have no ratio. The rules are those of the placement model
(:mod:`ganeti.htools.policy`).

Source: manual page **gnt-cluster**, *Instance policies*.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti.cmdlib import prereq
from ganeti.cmdlib.ops.policy import instance as policy
from ganeti.constants.instance import ADMIN_OFFLINE
from ganeti.htools.instance import LOCAL_STORAGE
from ganeti.htools.policy import most_spindles, most_vcpus
from ganeti.objects import fill
from ganeti.objects.by_node import instances_of_node

if TYPE_CHECKING:
    from ganeti.cmdlib.base import Context, JobLog
    from ganeti.config import Config
    from ganeti.objects import ConfigData, FilledInstance, Instance, Node


class Use(NamedTuple):
    """What instances use of a node."""

    vcpus: int = 0
    spindles: int = 0

    def plus(self, other: Use) -> Use:
        """Add another use."""
        return Use(self.vcpus + other.vcpus, self.spindles + other.spindles)


def use_of(beparams: Mapping[str, Any], disk_template: str, *, primary: bool) -> Use:
    """Return what one instance uses of its primary node, or of its secondary node.

    :param beparams: its filled backend parameters.
    """
    return Use(
        beparams["vcpus"] if primary else 0,
        beparams["spindle_use"] if disk_template in LOCAL_STORAGE else 0,
    )


def present_uses(data: ConfigData, nodes: Iterable[str]) -> dict[str, Use]:
    """Return what all instances use together of each of these nodes, forthcoming ones included.

    :returns: UUID of a node -> use.
    """
    return {uuid: _sum(data, uuid, Use()) for uuid in nodes}


def present_use(data: ConfigData, node_uuid: str, own: Use, without: str | None) -> Use:
    """Return what the instances of one node use together, as far as another instance adds to it.

    :param own: what the other instance uses.
    :param without: UUID of an instance which is not counted.
    """
    found = _sum(data, node_uuid, own, without)
    return found if own.spindles else found._replace(spindles=0)


def _sum(data: ConfigData, node_uuid: str, start: Use, without: str | None = None) -> Use:
    for instance in itertools.chain(*instances_of_node(data, node_uuid)):
        if instance.uuid != without:
            start = start.plus(_use_of(data, instance, node_uuid))
    return start


def _use_of(data: ConfigData, instance: Instance, node_uuid: str) -> Use:
    """Return what an existing instance uses of one of its nodes."""
    primary = instance.primary_node == node_uuid and instance.admin_state != ADMIN_OFFLINE
    template = fill.disk_template(fill.instance_disks(data, instance))
    return use_of(fill.fill_be(data.cluster, instance.beparams), template, primary=primary)


def problems(data: ConfigData, node: Node, use: Use, facts: Mapping[str, Any] | None) -> list[str]:
    """Return the list in words which ratios a use of a node exceeds.

    :param use: what all instances use together.
    :param facts: what the hypervisor reports, with ``cpu_total`` and ``cpu_dom0``; None when the
        virtual CPUs need no check.
    """
    group = data.nodegroups[node.group]
    limits = fill.fill_ipolicy(data.cluster.ipolicy, group.ipolicy)
    parameters = fill.fill_nd(data.cluster, group, node)
    found = []
    processors = None if facts is None else facts.get("cpu_total")
    if facts is not None and isinstance(processors, int):
        own = facts.get("cpu_dom0")
        vcpus = use.vcpus + (own if isinstance(own, int) else 0)
        most = most_vcpus(limits["vcpu-ratio"], processors)
        if vcpus > most:
            found.append(
                f"node {node.name} would have {vcpus} virtual CPUs, vcpu-ratio"
                f" {limits['vcpu-ratio']:g} permits {most} on {processors} processors"
            )
    if not parameters.get("exclusive_storage"):
        spindles = most_spindles(limits["spindle-ratio"], parameters.get("spindle_count", 1))
        if use.spindles > spindles:
            found.append(
                f"node {node.name} would have a spindle use of {use.spindles}, spindle-ratio"
                f" {limits['spindle-ratio']:g} permits {spindles:g}"
            )
    return found


def require(
    config: Config,
    log: JobLog,
    name: str,
    node: Node,
    own: Use,
    *,
    override: policy.Override,
    facts: Mapping[str, Any] | None,
    without: str | None = None,
) -> None:
    """Check that one more instance stays within the ratios of a node.

    :param own: what the instance uses of the node; nothing is checked where it uses nothing.
    :param without: UUID of the instance, which may be on the node already.
    :raises errors.OpPrereqError: a ratio would be exceeded.
    """
    if own == Use():
        return
    data = config.snapshot()
    use = present_use(data, node.uuid, own, without)
    found = problems(data, node, use, facts if own.vcpus else None)
    policy.refuse(config, log, name, node, found, override)


def require_policy(
    ctx: Context,
    instance: FilledInstance,
    target: Node,
    override: policy.Override,
    facts: dict[str, Any] | None = None,
) -> dict[str, Any] | None:
    """Check the policy of a group, and the ratios of the node to which an existing instance moves.

    When its primary node is offline, exceeded ratios are warnings: the guest has to run somewhere.

    :param facts: what the hypervisor of the target has just reported; None asks it if necessary.
    :returns: what the hypervisor of the target has reported, for further checks; None if it was not
        asked.
    :raises errors.OpPrereqError: the policy would be violated.
    """
    policy.require_policy(ctx.config, ctx.log, instance, target, override)
    own = use_of(instance.beparams, instance.disk_template, primary=True)
    if own.vcpus and facts is None:
        facts = prereq.node_facts(ctx.rpc, target.uuid, instance.hypervisor, instance.hvparams)
    lost = ctx.config.node(instance.primary_node).offline
    require(
        ctx.config, ctx.log, instance.name, target, own, override=override.or_if(lost), facts=facts,
        without=instance.uuid,
    )  # fmt: skip
    return facts
