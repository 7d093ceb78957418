"""Verification of the nodes and disks of instances in the configuration; no node is asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ganeti.objects import disk_templates, fill
from ganeti.utils.text import comma_join

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.config import Config
    from ganeti.objects import Instance, Node

# With the tag "htools:iextags:service" on the cluster, a node must not have two instances with the
# same tag "service:...".
EXCLUSION_PREFIX = "htools:iextags:"


def instances(config: Config, findings: Findings, found: Iterable[Instance]) -> None:
    """Check that the nodes and disks of instances fit together."""
    data = config.snapshot()
    for instance in found:
        if instance.forthcoming:
            continue
        secondaries = [data.nodes[uuid] for uuid in config.secondary_nodes(instance)]
        findings.check(
            len(secondaries) > 1,
            "EINSTANCELAYOUT",
            instance.name,
            "its disks have their secondary replicas on several nodes:"
            f" {comma_join(node.name for node in secondaries)}",
            warning=True,
        )
        offline = [node.name for node in secondaries if node.offline]
        findings.check(
            bool(offline),
            "EINSTANCEBADNODE",
            instance.name,
            f"its secondary node {comma_join(offline)} is offline",
        )
        groups = {data.nodes[uuid].group for uuid in config.instance_nodes(instance)}
        names = sorted(data.nodegroups[uuid].name for uuid in groups)
        findings.check(
            len(groups) > 1,
            "EINSTANCESPLITGROUPS",
            instance.name,
            f"its nodes are in several groups: {comma_join(names)}",
            warning=True,
        )
        _exclusive(config, findings, instance)
        _metadata(config, findings, instance)


def _metadata(config: Config, findings: Findings, instance: Instance) -> None:
    """Check that no disk is recorded with more than its metadata hold.

    Its devices have only what they hold. The rest of the recorded size does not exist.
    """
    for index, disk in enumerate(config.instance_disks(instance)):
        largest, metadata = disk.largest_mib, disk.metadata_device
        if largest is None or metadata is None:
            continue
        findings.check(
            disk.size > largest,
            "EINSTANCELAYOUT",
            instance.name,
            f"disk {index} is recorded with {disk.size} MiB, but its metadata on each node have"
            f" {metadata.size} MiB, which is enough for {largest} MiB, and its devices have no"
            " more. Correct the record with 'gnt-cluster repair-disk-sizes"
            f" {instance.name}' while the instance runs; 'gnt-instance grow-disk' says how to make"
            " larger metadata.",
            warning=True,
        )


def _exclusive(config: Config, findings: Findings, instance: Instance) -> None:
    """Check the disks on nodes with exclusive storage: template, and number of spindles."""
    data = config.snapshot()
    nodes = [data.nodes[uuid] for uuid in config.instance_nodes(instance)]
    exclusive = [
        node.name
        for node in nodes
        if fill.fill_nd(data.cluster, data.nodegroups[node.group], node)["exclusive_storage"]
    ]
    if not exclusive:
        return
    disks = config.instance_disks(instance)
    kinds = sorted({disk.dev_type for disk in disks} - disk_templates.EXCLUSIVE_STORAGE)
    findings.check(
        bool(kinds),
        "EINSTANCEUNSUITABLENODE",
        instance.name,
        f"has disks of template {comma_join(kinds)}, which cannot be on node"
        f" {comma_join(exclusive)} with exclusive storage",
    )
    for index, disk in enumerate(disks):
        findings.check(
            disk.spindles is None,
            "EINSTANCEMISSINGCFGPARAMETER",
            instance.name,
            f"the number of spindles of disk {index} is not in the configuration, although the"
            " node has exclusive storage. Use 'gnt-cluster repair-disk-sizes'.",
        )


def exclusion_tags(config: Config, findings: Findings, nodes: Sequence[Node]) -> None:
    """Check that no node has two instances which share an exclusion tag."""
    prefixes = tuple(
        tag.removeprefix(EXCLUSION_PREFIX) + ":"
        for tag in config.cluster().tags
        if tag.startswith(EXCLUSION_PREFIX)
    )
    if not prefixes:
        return
    primaries: dict[str, list[Instance]] = {}
    for instance in config.instances():
        primaries.setdefault(instance.primary_node, []).append(instance)
    for node in nodes:
        owners: dict[str, list[str]] = {}
        for instance in primaries.get(node.uuid, ()):
            for tag in instance.tags:
                if tag.startswith(prefixes):
                    owners.setdefault(tag, []).append(instance.name)
        for tag, names in sorted(owners.items()):
            findings.check(
                len(names) > 1,
                "EEXTAGS",
                node.name,
                f"its instances {comma_join(names)} share the exclusive tag {tag}",
            )
