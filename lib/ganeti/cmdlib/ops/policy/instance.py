"""Compare instances with the policy of a node group, and with its connections to networks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ganeti import errors
from ganeti.constants.net import NIC_MODE_ROUTED
from ganeti.objects import fill, hypervisors, ipolicy, updated

if TYPE_CHECKING:
    from ganeti.cmdlib.base import JobLog
    from ganeti.config import Config
    from ganeti.objects import FilledInstance, Instance, Node, NodeGroup


def counted_sizes(
    hypervisor: str,
    filled: Callable[[], Mapping[str, Any]],
    disks: Iterable[tuple[str | None, int]],
) -> list[int | None]:
    """Sizes (MiB) of disks as :func:`violations` needs them.

    The small disks of the firmware and of cloud-init have no size here, because the policy does not
    concern them.

    :param filled: returns the filled hypervisor parameters; called only when they are needed.
    :param disks: name and size in MiB of each.
    """
    sizes: list[int | None] = []
    for name, size in disks:
        own = ipolicy.is_special_disk(name, size) and (
            name == ipolicy.SEED_DISK or name in hypervisors.of(hypervisor).firmware_disks(filled())
        )
        sizes.append(None if own else size)
    return sizes


def violations(
    config: Config,
    node: Node,
    *,
    beparams: Mapping[str, Any],
    disk_sizes_mib: Iterable[int | None],
    nic_count: int,
    disk_template: str,
) -> list[str]:
    """List the violations of the policy of the node's group by an instance, in words."""
    group = config.snapshot().nodegroups[node.group]
    return ipolicy.check(
        fill.fill_ipolicy(config.cluster().ipolicy, group.ipolicy),
        memory_mib=beparams["maxmem"],
        vcpus=beparams["vcpus"],
        disk_sizes_mib=disk_sizes_mib,
        nic_count=nic_count,
        spindle_use=beparams["spindle_use"],
        disk_template=disk_template,
    )


#: The command which overrides the policy, for each opcode that can.
OVERRIDING = {
    "OP_INSTANCE_CREATE": "gnt-instance add",
    "OP_INSTANCE_FAILOVER": "gnt-instance failover",
    "OP_INSTANCE_GROW_DISK": "gnt-instance grow-disk",
    "OP_INSTANCE_MIGRATE": "gnt-instance migrate",
    "OP_INSTANCE_MOVE": "gnt-instance move",
    "OP_INSTANCE_REPLACE_DISKS": "gnt-instance replace-disks",
    "OP_INSTANCE_SET_PARAMS": "gnt-instance modify",
}


class Override(NamedTuple):
    """Whether the violations of a policy are warnings.

    :ivar opcode: id of the opcode which runs; the command that overrides the policy follows from
        it.
    """

    wanted: bool
    opcode: str

    def or_if(self, reason: bool) -> Override:
        """Return an override which is wanted for another reason, too."""
        return self._replace(wanted=self.wanted or reason)

    def hint(self) -> str:
        """Return a sentence with the command which overrides the policy; empty if there is none.

        The command is named because the job may come from another one, such as the evacuation of a
        node, which has no such option.
        """
        command = OVERRIDING.get(self.opcode)
        return "" if command is None else f". Use '{command} --ignore-ipolicy' to override it."


def instance_violations(config: Config, instance: FilledInstance, node: Node) -> list[str]:
    """List the violations of the policy of a node's group by an existing instance, in words."""
    group = config.snapshot().nodegroups[node.group]
    return of_instance(fill.fill_ipolicy(config.cluster().ipolicy, group.ipolicy), instance)


def of_instance(policy: Mapping[str, Any], instance: FilledInstance) -> list[str]:
    """List the violations of a (filled) policy by an existing instance, in words."""
    return ipolicy.check(
        policy,
        memory_mib=instance.beparams["maxmem"],
        vcpus=instance.beparams["vcpus"],
        disk_sizes_mib=counted_sizes(
            instance.hypervisor,
            lambda: instance.hvparams,
            ((disk.name, disk.size) for disk in instance.disks_info),
        ),
        nic_count=len(instance.nics),
        spindle_use=instance.beparams["spindle_use"],
        disk_template=instance.disk_template,
    )


def newly_violates(
    before: Mapping[str, Any], after: Mapping[str, Any], instance: FilledInstance
) -> bool:
    """Return whether an existing instance violates a (filled) policy in a way in which it did not
    violate the one before.
    """
    return not set(of_instance(after, instance)) <= set(of_instance(before, instance))


def require_policy(
    config: Config, log: JobLog, instance: FilledInstance, node: Node, override: Override
) -> None:
    """Check an existing instance against the policy of the node's group.

    What it violates on its present primary node is a warning: limits which have become narrower do
    not keep it on a node which has to be emptied.

    :raises errors.OpPrereqError: it violates the policy.
    """
    found = instance_violations(config, instance, node)
    if found and not override.wanted:
        present = instance_violations(config, instance, config.node(instance.primary_node))
        override = override.or_if(set(found) <= set(present))
    refuse(config, log, instance.name, node, found, override)


def refuse(
    config: Config, log: JobLog, name: str, node: Node, found: list[str], override: Override
) -> None:
    """Raise the violations found, if any, as an error, or warn about them.

    :raises errors.OpPrereqError: there are violations.
    """
    if not found:
        return
    group = config.snapshot().nodegroups[node.group]
    # Few instances violate a policy.
    from ganeti.htools import reasons

    lines = "; ".join(reasons.violated(group.name, found))
    text = f"instance {name} violates the policy of group {group.name}: {lines}"
    if not override.wanted:
        raise errors.OpPrereqError(f"{text}{override.hint()}", errors.ECODE_INVAL)
    log.warn(text)


# -- networks ------------------------------------------------------------------------------------

# The connection of a network to a node group says with which mode, link and VLAN the interfaces of
# instances in this group are connected. It is copied into the interfaces. So what goes to another
# group must be in networks that are connected there, and gets the parameters of these connections.


def unconnected_network(config: Config, instance: Instance, group: NodeGroup) -> str:
    """Return why the interfaces of an instance cannot be connected in a group; empty if they can.

    The text names the interface and the network.
    """
    for index, nic in enumerate(instance.nics):
        if nic.network is None:
            continue
        what = f"network interface {index} of instance {instance.name}"
        network = config.network(nic.network)
        connection = group.networks.get(network.uuid)
        if connection is None:
            return (
                f"{what} is in network {network.name}, which is not connected to node group"
                f" {group.name}. Use 'gnt-network connect'"
            )
        filled = fill.fill_nic(config.cluster(), connection)
        if filled["mode"] == NIC_MODE_ROUTED and nic.ip is None:
            return (
                f"{what} has no IP address, but its network {network.name} is routed in node group"
                f" {group.name}"
            )
    return ""


def in_group_of(config: Config, instance: Instance, node: Node) -> Instance:
    """Return an instance with the interfaces which it will have when a node is its primary node.

    :raises errors.OpPrereqError: one of its networks is not connected to the group of the node.
    """
    if node.group == config.node(instance.primary_node).group:
        return instance
    group = config.group(node.group)
    problem = unconnected_network(config, instance, group)
    if problem:
        raise errors.OpPrereqError(
            f"{problem}, before the instance goes to node {node.name}.", errors.ECODE_STATE
        )
    nics = fill.connected_nics(instance.nics, group)
    return instance if nics == instance.nics else updated(instance, nics=nics)
