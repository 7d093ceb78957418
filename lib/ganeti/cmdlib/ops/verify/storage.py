"""Verification of storage: LVM, DRBD, and the disks of instances.

The verification of a node group calls this module. Most facts are in the answers to
``node_verify``; where a check failed on the node, its result is the text of the error. Only the
states of disks are asked for here.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ganeti.cmdlib.base import why
from ganeti.cmdlib.ops.disks import replica_report
from ganeti.cmdlib.ops.verify import left_disks
from ganeti.cmdlib.ops.verify.mirrors import Answers, Asked, MirrorCheck
from ganeti.config import damaged
from ganeti.config.index_keys import LV, MINOR
from ganeti.constants import disk as disk_c
from ganeti.constants import node_verify as nv
from ganeti.objects import cluster_rules, disk_templates, fill, snapshots
from ganeti.objects.by_node import instances_of_node
from ganeti.utils.text import comma_join
from ganeti.wire.calls import BLOCKDEV_GETDIMENSIONS
from ganeti.wire.calls.base import Failed

if TYPE_CHECKING:
    from ganeti.cmdlib.ops.verify.findings import Findings
    from ganeti.cmdlib.ops.verify.left_disks import LeftDisk
    from ganeti.config import Config
    from ganeti.objects import Cluster, ConfigData, Disk, Instance, Node, NodeGroup
    from ganeti.rpc import RpcRunner
    from ganeti.wire.calls.base import Call

MIN_VG_MIB = 20 * 1024
# Physical volumes of the same model may differ by this part of their size.
PV_TOLERANCE = 0.02
# Third letter of the attributes of a missing physical volume, see pvs(8).
_MISSING = "m"


def uses_lvm(cluster: Cluster) -> bool:
    """Tell whether disks of the cluster may be logical volumes."""
    return bool(disk_templates.LVM_BASED & set(cluster.enabled_disk_templates))


def node_checks(data: ConfigData, exclusive: bool) -> dict[str, Any]:
    """Make the checks of ``node_verify`` for this module: name of a check -> its argument.

    :param exclusive: the nodes of the group have exclusive storage.
    """
    cluster = data.cluster
    checks: dict[str, Any] = {}
    if uses_lvm(cluster):
        name = cluster.volume_group_name or ""
        checks |= {nv.VGDUPLICATES: None}
        groups = {
            str(v.logical_id[0]) for d in data.disks.values() for v in d.walk() if v.is_volume
        }
        checks[nv.LVLIST] = sorted({name, *groups} - {""}) or None
        checks.update({nv.VGLIST: None, nv.PVLIST: [name] if name else []})
        if exclusive and name:
            checks[nv.EXCLUSIVEPVS] = [name]
    if disk_c.DRBD8 in cluster.enabled_disk_templates:
        checks |= {nv.DRBDVERSION: None, nv.DRBDMINORS: None}
        checks |= {nv.DRBDLIST: None, nv.DRBDCONNECTIONS: None}
        if cluster.drbd_usermode_helper:
            checks[nv.DRBDHELPER] = cluster.drbd_usermode_helper
    for template, check in disk_templates.directory_checks().items():
        directory = cluster.disk_directory(template)
        if template in cluster.enabled_disk_templates and directory:
            checks[check.name] = directory
    return checks


def lost_volumes(physical: Sequence[Sequence[Any]]) -> dict[str, list[str]]:
    """Find incomplete volume groups.

    :param physical: physical volumes as ``node_verify`` returns them.
    :returns: name of an incomplete volume group -> logical volumes on its lost physical volumes.
    """
    found: dict[str, set[str]] = {}
    for _name, vg_name, _size, _free, attributes, volumes in physical:
        if attributes[2:3] == _MISSING:
            found.setdefault(vg_name, set()).update(volumes)
    return {vg_name: sorted(volumes) for vg_name, volumes in found.items()}


class StorageCheck:
    """Checks the storage of the nodes of a group, and the disks of its instances.

    :param nodes: the nodes which were asked.
    :param answers: UUID of a node -> its answer to ``node_verify``.
    :param unresponsive: UUIDs of the nodes which could not be reached; they are not asked again.
    """

    def __init__(
        self,
        config: Config,
        rpc: RpcRunner,
        findings: Findings,
        nodes: Sequence[Node],
        answers: Answers,
        unresponsive: Collection[str] = (),
    ) -> None:
        self._unresponsive = unresponsive
        self._config = config
        self._rpc = rpc
        self._data = config.snapshot()
        self._findings = findings
        self._nodes = [node for node in nodes if node.uuid in answers and node.vm_capable]
        self._answers = answers

    # -- nodes -----------------------------------------------------------------

    def nodes(self) -> None:
        """Check LVM and DRBD of each node."""
        cluster = self._data.cluster
        minors = self._minors() if disk_c.DRBD8 in cluster.enabled_disk_templates else {}
        for node in self._nodes:
            answer = self._answers[node.uuid]
            if uses_lvm(cluster):
                self._lvm(node, answer, cluster.volume_group_name or "")
                self._metadata_group(node, answer)
            if disk_c.DRBD8 in cluster.enabled_disk_templates:
                self._drbd(node, answer, cluster, minors.get(node.uuid, {}))

    def _lvm(self, node: Node, answer: Mapping[str, Any], group_name: str) -> None:
        report = self._findings.report
        groups, physical = answer.get(nv.VGLIST), answer.get(nv.PVLIST)
        if not isinstance(groups, dict):
            report("ENODELVM", node.name, f"did not report its volume groups: {groups}")
            return
        if not isinstance(answer.get(nv.LVLIST), dict):
            report(
                "ENODELVM",
                node.name,
                f"did not report its logical volumes: {answer.get(nv.LVLIST)}",
            )
        self._used_twice(node, answer, group_name)
        if group_name not in groups:
            report("ENODELVM", node.name, f"has no volume group {group_name}")
        elif groups[group_name] < MIN_VG_MIB:
            report(
                "ENODELVM",
                node.name,
                f"its volume group {group_name} has only {groups[group_name]:.0f} MiB, at least"
                f" {MIN_VG_MIB} MiB are needed",
            )
        if not isinstance(physical, list):
            report("ENODELVM", node.name, f"did not report its physical volumes: {physical}")
        else:
            for vg_name, lost in sorted(lost_volumes(physical).items()):
                report(
                    "ENODELVM",
                    node.name,
                    f"volume group {vg_name} lacks physical volumes with"
                    f" {comma_join(lost) or 'no logical volumes'}. If they are lost, use 'gnt-node"
                    " repair-storage'.",
                )
            for name, *_rest in physical:
                self._findings.check(
                    ":" in name,
                    "ENODELVM",
                    node.name,
                    f"physical volume {name} has a colon in its name, so LVM takes the name for a"
                    " list",
                )
        shared = answer.get(nv.EXCLUSIVEPVS)
        if isinstance(shared, str):
            report("ENODELVM", node.name, f"did not report its physical volumes: {shared}")
            return
        for name, volumes in shared or ():
            report(
                "ENODELVM",
                node.name,
                f"physical volume {name} holds several logical volumes ({comma_join(volumes)}),"
                " although storage is exclusive",
            )

    def _metadata_group(self, node: Node, answer: Mapping[str, Any]) -> None:
        """Report a node without the volume group for metadata of new mirrored disks."""
        cluster, groups = self._data.cluster, answer.get(nv.VGLIST)
        name = fill.metavg(cluster, self._data.nodegroups[node.group])
        # The list of volume groups, and the group of the cluster, have their own messages.
        if name in (None, cluster.volume_group_name) or not isinstance(groups, dict):
            return
        if disk_c.DRBD8 in cluster.enabled_disk_templates and name not in groups:
            self._findings.report(
                "ENODELVM", node.name, f"has no volume group {name}, which is for metadata of DRBD"
            )

    def _used_twice(self, node: Node, answer: Mapping[str, Any], group_name: str) -> None:
        """Report volume groups of our disks whose name another volume group has, too."""
        twice = answer.get(nv.VGDUPLICATES)
        if not isinstance(twice, list):
            return  # The list of volume groups has the same problem, and says it.
        ours = {name.partition("/")[0] for name in self._volumes_of(node.uuid)} | {group_name}
        for name in sorted(ours.intersection(twice)):
            self._findings.report(
                "ENODELVM",
                node.name,
                f"several volume groups have the name {name}, so LVM refuses changes, and lists mix"
                " the volumes of both. Rename the other one with 'vgrename UUID NEW-NAME', or hide"
                " its disks with global_filter in lvm.conf.",
            )

    def _drbd(
        self,
        node: Node,
        answer: Mapping[str, Any],
        cluster: Cluster,
        wanted: Mapping[int, tuple[str, bool]],
    ) -> None:
        report = self._findings.report
        if nv.DRBDHELPER in answer:
            known, helper = answer[nv.DRBDHELPER] or (False, "no answer")
            if not known:
                report(
                    "ENODEDRBDHELPER", node.name, f"its DRBD usermode helper is not known: {helper}"
                )
            else:
                self._findings.check(
                    helper != cluster.drbd_usermode_helper,
                    "ENODEDRBDHELPER",
                    node.name,
                    f"its DRBD usermode helper is {helper}, not {cluster.drbd_usermode_helper}",
                )
        limit = answer.get(nv.DRBDMINORS)
        for minor, (instance, _must_exist) in sorted(wanted.items()):
            self._findings.check(
                isinstance(limit, int) and minor >= limit,
                "ENODEDRBD",
                node.name,
                f"its DRBD module was loaded for {limit} minors, so the disk of instance {instance}"
                f" with minor {minor} cannot be used here. Load the module with a larger"
                " minor_count.",
            )
        used = answer.get(nv.DRBDLIST)
        if not isinstance(used, list):
            report("ENODEDRBD", node.name, f"did not report its DRBD minors: {used}")
            return
        for minor, (instance, must_exist) in sorted(wanted.items()):
            self._findings.check(
                must_exist and minor not in used,
                "ENODEDRBD",
                node.name,
                f"DRBD minor {minor} of instance {instance} is not active",
            )
        reserved = self._config.reserved_minors(node.uuid) | {
            minor for owner, minor in damaged.values_in_use(self._data, MINOR) if owner == node.uuid
        }
        for minor in used:
            self._findings.check(
                minor not in wanted and minor not in reserved,
                "ENODEDRBD",
                node.name,
                f"DRBD minor {minor} is in use, but belongs to no disk",
            )

    def _minors(self) -> dict[str, dict[int, tuple[str, bool]]]:
        """DRBD minors of the nodes in the configuration.

        :returns: UUID of a node -> minor -> name of the instance, and whether it must be active.
        """
        found: dict[str, dict[int, tuple[str, bool]]] = {}
        # Each once, although its disks are on two nodes.
        theirs = {
            instance.uuid: instance
            for node in self._nodes
            for instance in itertools.chain(*instances_of_node(self._data, node.uuid))
        }
        for instance in theirs.values():
            for uuid in instance.disks:
                for device in self._data.disks[uuid].walk():
                    if not device.has_whole_drbd_id:
                        continue
                    for owner, minor in device.drbd_id.minors.items():
                        found.setdefault(owner, {})[minor] = instance.name, instance.disks_active
        return found

    def versions(self) -> None:
        """Check that all nodes have the same version of DRBD, so that replicas can connect."""
        found: dict[str, list[str]] = {}
        for node in self._nodes:
            version = self._answers[node.uuid].get(nv.DRBDVERSION)
            if isinstance(version, list) and version:
                found.setdefault(".".join(map(str, version)), []).append(node.name)
            elif isinstance(version, str):
                self._findings.report(
                    "ENODEDRBDVERSION", node.name, f"did not report its DRBD version: {version}"
                )
        for version, names in found.items():
            for name in names:
                self._findings.check(
                    len(found) > 1,
                    "ENODEDRBDVERSION",
                    name,
                    f"has DRBD {version}, but other nodes have"
                    f" {comma_join(other for other in sorted(found) if other != version)}",
                    warning=True,
                )

    def physical_sizes(self, group: NodeGroup) -> None:
        """Check that all physical volumes of nodes with exclusive storage have the same size."""
        sizes: list[tuple[float, str, str]] = []
        for node in self._nodes:
            if not self._exclusive(node):
                continue
            physical = self._answers[node.uuid].get(nv.PVLIST)
            if isinstance(physical, list):
                sizes += [(size, name, node.name) for name, _vg, size, *_rest in physical]
        if not sizes:
            return
        smallest, largest = min(sizes), max(sizes)
        self._findings.check(
            smallest[0] < largest[0] * (1 - PV_TOLERANCE),
            "EGROUPDIFFERENTPVSIZE",
            group.name,
            f"physical volumes differ in size: {smallest[1]} on {smallest[2]} has"
            f" {smallest[0]:.0f} MiB, {largest[1]} on {largest[2]} has {largest[0]:.0f} MiB",
        )

    def _exclusive(self, node: Node) -> bool:
        group = self._data.nodegroups[node.group]
        return bool(fill.fill_nd(self._data.cluster, group, node)["exclusive_storage"])

    # -- volumes ---------------------------------------------------------------

    def volumes(self) -> None:
        """Check for missing logical volumes, and for unknown and kept ones.

        An unknown volume is reported when its volume group is the one of the cluster, or has
        volumes of disks on the checked nodes.
        """
        if not uses_lvm(self._data.cluster):
            return
        wanted = {node.uuid: self._volumes_of(node.uuid) for node in self._nodes}
        ours = {name.partition("/")[0] for volumes in wanted.values() for name in volumes} | {
            self._data.cluster.volume_group_name or ""
        }
        is_foreign = cluster_rules.is_reserved_volume(self._data.cluster.reserved_lvs)
        reserved = self._config.reserved_volumes() | damaged.values_in_use(self._data, LV)
        detached, kept = self._detached_volumes()
        for node in self._nodes:
            listed = self._answers[node.uuid].get(nv.LVLIST)
            if not isinstance(listed, dict):
                continue
            expected = wanted[node.uuid]
            unknown = {name: reason for name, reason in listed.items() if isinstance(reason, str)}
            for name, reason in sorted(unknown.items()):
                self._findings.report(
                    "ENODELVM", node.name, f"did not report volume group {name}: {reason}"
                )
            listed = {name: found for name, found in listed.items() if name not in unknown}
            for name, instance_name in sorted(expected.items()):
                self._findings.check(
                    name not in listed and name.partition("/")[0] not in unknown,
                    "EINSTANCEMISSINGDISK",
                    instance_name,
                    f"volume {name} is missing on node {node.name}",
                )
            for name in sorted(set(listed) - set(expected)):
                left = kept.get((node.uuid, name))
                if left is not None:
                    text = f"has volume {name}, {left.text()}"
                    self._findings.report("ENODEORPHANLV", node.name, text, warning=True)
                    continue
                parts = snapshots.split(name)
                # A snapshot belongs to the owner of its volume.
                belongs = parts is not None and (parts[0] in expected or parts[0] in reserved)
                known = (
                    belongs or name in reserved or (node.uuid, name) in detached or is_foreign(name)
                )
                self._findings.check(
                    name.partition("/")[0] in ours and not known,
                    "ENODEORPHANLV",
                    node.name,
                    f"has volume {name}, which belongs to no disk",
                )

    def _volumes_of(self, node_uuid: str) -> dict[str, str]:
        """Return the logical volumes which a node should have: ``group/volume`` -> instance."""
        found: dict[str, str] = {}
        primaries, secondaries = instances_of_node(self._data, node_uuid)
        for instance in (*primaries, *secondaries):
            for uuid in instance.disks:
                disk = self._data.disks[uuid]
                if disk.forthcoming or disk.dev_type not in disk_templates.LVM_BASED:
                    continue
                if node_uuid not in (disk.all_node_uuids() or (instance.primary_node,)):
                    continue
                for device in disk.walk():
                    if device.is_volume:
                        found[str(device.volume_id)] = instance.name
        return found

    def _detached_volumes(self) -> tuple[set[tuple[str, str]], dict[tuple[str, str], LeftDisk]]:
        """Volumes of disks which no instance has: UUID of the node, and name.

        :returns: all of them; and those which an interrupted operation on an instance left.
        """
        used = {uuid for one in self._data.instances.values() for uuid in one.disks}
        detached = {
            (node_uuid, replica_report.volume_name(device))
            for uuid, disk in self._data.disks.items()
            if uuid not in used
            for device in disk.walk()
            if device.is_volume
            for node_uuid in disk.nodes
        }
        kept = {
            (node_uuid, replica_report.volume_name(device)): one
            for one in left_disks.find(self._data)
            for device in one.disk.walk()
            if device.is_volume
            for node_uuid in one.nodes
        }
        return detached, kept

    def left_disks(self, group: NodeGroup) -> None:
        """Name the disks which interrupted operations left, other than volumes that were listed."""
        left = left_disks.find(self._data)
        if not left:
            return
        own = {node.uuid for node in self._data.nodes.values() if node.group == group.uuid}
        listed = {
            node.uuid
            for node in self._nodes
            if isinstance(self._answers[node.uuid].get(nv.LVLIST), dict)
        }
        asked = left_disks.to_ask(left, own, listed)
        answers = self._ask(
            BLOCKDEV_GETDIMENSIONS,
            {
                uuid: [(one.disk, one.owner) for one in some if one.owner is not None]
                for uuid, some in asked.items()
            },
        )
        left_disks.report(self._findings, self._data, asked, answers)
        left_disks.report_without_owner(self._findings, self._data, left, own, listed)

    # -- disks of instances ----------------------------------------------------

    def disks(self, instances: Sequence[Instance]) -> None:
        """Check that all disks of instances exist, and that DRBD disks are in sync."""
        files: Asked = {}
        mirrors: list[tuple[Disk, Instance]] = []
        for instance in instances:
            if instance.forthcoming:
                continue
            for disk in self._config.instance_disks(instance):
                if disk.has_replicas:
                    if not disk.forthcoming:
                        mirrors.append((disk, instance))
                elif not disk.is_volume:
                    files.setdefault(instance.primary_node, []).append((disk, instance))
        self._files(files)
        check = MirrorCheck(self._config, self._findings, self._nodes, self._answers)
        check.replicas(mirrors, self._ask)
        check.connections(mirrors)

    def _ask(self, call: Call, asked: Asked) -> dict[str, Any]:
        """Ask online nodes about disks, and report which of them did not answer."""
        online = {
            uuid: pairs
            for uuid, pairs in asked.items()
            if not self._data.nodes[uuid].offline and uuid not in self._unresponsive
        }
        if not online:
            return {}
        answers = self._rpc.call_many(
            call, list(online), per_node={uuid: {"disks": pairs} for uuid, pairs in online.items()}
        )
        found = {}
        for uuid, answer in answers.items():
            self._findings.check(
                answer.failure is not None,
                "ENODERPC",
                answer.node_name,
                f"could not be asked about disks: {why(answer.failure)}",
            )
            if answer.failure is None:
                found[uuid] = answer.data
        return found

    def _files(self, asked: Asked) -> None:
        for uuid, dimensions in self._ask(BLOCKDEV_GETDIMENSIONS, asked).items():
            name = self._data.nodes[uuid].name
            for (disk, instance), found in zip(asked[uuid], dimensions, strict=True):
                if isinstance(found, Failed):
                    self._findings.report(
                        "EINSTANCEFAULTYDISK",
                        instance.name,
                        f"{disk.iv_name} could not be examined on node {name}: {found.text}",
                    )
                    continue
                self._findings.check(
                    found is None,
                    "EINSTANCEMISSINGDISK",
                    instance.name,
                    f"{disk.iv_name} does not exist on node {name}",
                )
