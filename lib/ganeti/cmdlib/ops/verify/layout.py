"""Verification of where instances are: what the configuration alone shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ganeti.constants import disk as disk_c
from ganeti.utils.text import comma_join

if TYPE_CHECKING:
    from ganeti.cmdlib.base import AnyUnit
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.objects import Instance, Node

# "htools:iextags:service" on the cluster: no two instances with the same "service:..." on a node.
EXCLUSION_PREFIX = "htools:iextags:"


def instances(unit: AnyUnit, findings: Findings, found: Iterable[Instance]) -> None:
    """Nodes and disks of instances go together."""
    data = unit.config.snapshot()
    for instance in found:
        if instance.forthcoming:
            continue
        secondaries = [data.nodes[uuid] for uuid in unit.config.secondary_nodes(instance)]
        findings.check(
            len(secondaries) > 1,
            "EINSTANCELAYOUT",
            instance.name,
            "its disks have their other halves on several nodes:"
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
        groups = {data.nodes[uuid].group for uuid in unit.config.instance_nodes(instance)}
        names = sorted(data.nodegroups[uuid].name for uuid in groups)
        findings.check(
            len(groups) > 1,
            "EINSTANCESPLITGROUPS",
            instance.name,
            f"its nodes are in several groups: {comma_join(names)}",
            warning=True,
        )
        _exclusive(unit, findings, instance)


def _exclusive(unit: AnyUnit, findings: Findings, instance: Instance) -> None:
    """On nodes whose physical disks are not shared, disks are plain and know their spindles."""
    data = unit.config.snapshot()
    nodes = [data.nodes[uuid] for uuid in unit.config.instance_nodes(instance)]
    exclusive = [
        node.name
        for node in nodes
        if data.cluster.fill_nd(node, data.nodegroups[node.group])["exclusive_storage"]
    ]
    if not exclusive:
        return
    disks = unit.config.instance_disks(instance)
    kinds = sorted({disk.dev_type for disk in disks} - disk_c.EXCLUSIVE_STORAGE)
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
            f"the number of spindles of disk {index} is not on record, though storage is"
            " exclusive. See 'gnt-cluster repair-disk-sizes'.",
        )


def exclusion_tags(unit: AnyUnit, findings: Findings, nodes: Sequence[Node]) -> None:
    """Instances which must not be together are on different nodes."""
    prefixes = tuple(
        tag.removeprefix(EXCLUSION_PREFIX) + ":"
        for tag in unit.config.cluster().tags
        if tag.startswith(EXCLUSION_PREFIX)
    )
    if not prefixes:
        return
    for node in nodes:
        owners: dict[str, list[str]] = {}
        for instance in unit.config.node_instances(node.uuid)[0]:
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
