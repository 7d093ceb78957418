"""Verification of the devices which administrators have made: each belongs to one disk only.

The names of the devices come from the nodes, see :mod:`ganeti.cmdlib.ops.disks.same_device`. A
cluster without such disks asks nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti.cmdlib.ops.disks import same_device
from ganeti.constants import disk as disk_c
from ganeti.constants import node_verify as nv
from ganeti.utils.text import comma_join

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.disks.same_device import KnownDisk
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.objects import ConfigData, Instance, Node


def node_checks(data: ConfigData, nodes: Sequence[Node]) -> dict[str, Any]:
    """Make the checks of ``node_verify`` for this module: name of a check -> its argument."""
    if not same_device.has_devices_of_administrators(data):
        return {}
    known = same_device.known_disks(data)
    asked = {path for node in nodes for one in known for path in same_device.paths(one, node.uuid)}
    return {nv.DEVICES: sorted(asked)}


def check(
    data: ConfigData,
    findings: Findings,
    instances: Sequence[Instance],
    nodes: Sequence[Node],
    answers: Mapping[str, Mapping[str, Any]],
) -> None:
    """Report devices which two disks have, and paths which lead to different devices.

    :param instances: the instances of the group; at least one of the two disks belongs to them.
    :param answers: UUID of a node -> its answer to ``node_verify``.
    """
    if not same_device.has_devices_of_administrators(data):
        return
    known = same_device.known_disks(data)
    ours = {instance.uuid for instance in instances}
    pairs: dict[tuple[str, str], tuple[KnownDisk, KnownDisk, list[str]]] = {}
    # UUID of a disk -> the names by which a SAN knows it -> nodes.
    volumes: dict[str, dict[frozenset[str], list[str]]] = {}
    for node in nodes:
        if node.uuid not in answers or not node.vm_capable:
            continue
        found, _problems = same_device.read_answer(answers[node.uuid].get(nv.DEVICES))
        disks = [(one, same_device.names_of(data, one, node.uuid, found)) for one in known]
        for first, second in same_device.overlapping(disks):
            key = first.disk.uuid, second.disk.uuid
            pairs.setdefault(key, (first, second, []))[2].append(node.name)
        for one, names in disks:
            if one.disk.dev_type == disk_c.BLOCK and names.san:
                volumes.setdefault(one.disk.uuid, {}).setdefault(names.san, []).append(node.name)
    for first, second, where in pairs.values():
        _report_pair(findings, ours, first, second, where)
    for one in known:
        if one.instance is not None and one.instance.uuid in ours:
            _report_volumes(findings, one, one.instance, volumes.get(one.disk.uuid, {}))


def _report_pair(
    findings: Findings,
    ours: Collection[str],
    first: KnownDisk,
    second: KnownDisk,
    where: Sequence[str],
) -> None:
    if first.instance is None or first.instance.uuid not in ours:
        first, second = second, first
    if first.instance is None or first.instance.uuid not in ours:
        return
    findings.report(
        "EINSTANCELAYOUT",
        first.instance.name,
        f"{first.disk.iv_name} and {second} are one device, or overlap, on"
        f" {comma_join(sorted(where))}. Writes to one change the other. Stop the instances, and"
        " find out to which of them the device belongs.",
    )


def _report_volumes(
    findings: Findings,
    one: KnownDisk,
    instance: Instance,
    found: Mapping[frozenset[str], Sequence[str]],
) -> None:
    kinds = list(found)
    if len(kinds) < 2 or frozenset.intersection(*kinds):
        return
    places = "; ".join(
        f"{comma_join(sorted(nodes))}: {comma_join(sorted(names))}"
        for names, nodes in sorted(found.items(), key=lambda item: sorted(item[1]))
    )
    findings.report(
        "EINSTANCELAYOUT",
        instance.name,
        f"the path {one.disk.stored_name} of {one.disk.iv_name} leads to different devices on its"
        f" nodes ({places}). Make it the same on all nodes before you move the instance.",
    )
