"""The operations which destroy or promote replicas, or may, for :mod:`fakes.replica_states`.

Each is tried on the instance of :class:`fakes.confirmed.Lab`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from fakes import mirror
from fakes.breaking import WEB
from fakes.confirmed import PRIMARY, SECONDARY, SPARE, Lab
from ganeti.opcodes import instance as ops
from ganeti.opcodes.backup import OpBackupExport
from ganeti.opcodes.base import OpCode
from ganeti.opcodes.cluster import OpClusterRepairDiskSizes
from ganeti.opcodes.node import OpNodeEvacuate, OpNodeSetParams, OpRepairNodeStorage

NEW_NAME = "www.example.com"
_SNAPSHOT = "before"


class Operation(NamedTuple):
    """What an administrator does.

    :ivar make: the opcodes, one after the other.
    :ivar destroys: the data are destroyed on purpose when it succeeds.
    :ivar repair: what makes the disk usable again afterwards.
    """

    make: Callable[[], list[OpCode]]
    destroys: bool = False
    repair: Callable[[Lab], None] | None = None


def _web(kind: type[OpCode], **changes: Any) -> Operation:
    return Operation(lambda: [kind(instance_name=WEB, **changes)])  # type: ignore[call-arg]


def _modify(**changes: Any) -> Operation:
    return _web(ops.OpInstanceSetParams, **changes)


def _replace(mode: str, **changes: Any) -> Operation:
    return _web(ops.OpInstanceReplaceDisks, mode=mode, disks=[], **changes)


def _repair_storage(node: str, ignore_consistency: bool = False) -> Operation:
    """The volume group has lost a physical volume; what was on it is removed."""
    op = OpRepairNodeStorage(
        node_name=node,
        storage_type="lvm-vg",
        name="xenvg",
        ignore_consistency=ignore_consistency,
    )
    return Operation(lambda: [op], repair=_make_lost_disk_again)


def _make_lost_disk_again(lab: Lab) -> None:
    """The volumes of one node are lost; they are made and filled anew."""
    assert lab.instance is not None
    for node, mode in ((PRIMARY, "replace_on_primary"), (SECONDARY, "replace_on_secondary")):
        volumes = lab.nodes.root(f"{node}.example.com") / mirror.LVM / "xenvg"
        if not any(volumes.iterdir()):
            lab.run(ops.OpInstanceReplaceDisks(instance_name=WEB, mode=mode, disks=[]))


def _attach_again(lab: Lab) -> None:
    for disk in lab.cluster.config.snapshot().disks.values():
        if lab.instance is not None and disk.uuid not in lab.instance.disks:
            lab.run(
                ops.OpInstanceSetParams(
                    instance_name=WEB, disks=[["attach", -1, {"uuid": disk.uuid}]]
                )
            )


OPERATIONS: dict[str, Operation] = {
    "startup": _web(ops.OpInstanceStartup),
    "startup --force": _web(ops.OpInstanceStartup, force=True),
    "activate-disks": _web(ops.OpInstanceActivateDisks),
    "activate-disks --wait-for-sync": _web(ops.OpInstanceActivateDisks, wait_for_sync=True),
    "deactivate-disks": _web(ops.OpInstanceDeactivateDisks),
    "deactivate-disks --force": _web(ops.OpInstanceDeactivateDisks, force=True),
    "shutdown": _web(ops.OpInstanceShutdown),
    "shutdown --ignore-offline": _web(ops.OpInstanceShutdown, ignore_offline_nodes=True),
    "reboot soft": _web(ops.OpInstanceReboot, reboot_type="soft"),
    "reboot hard": _web(ops.OpInstanceReboot, reboot_type="hard"),
    "reboot full": _web(ops.OpInstanceReboot, reboot_type="full"),
    "reboot full --ignore-secondaries": _web(
        ops.OpInstanceReboot, reboot_type="full", ignore_secondaries=True
    ),
    "failover": _web(ops.OpInstanceFailover),
    "failover --ignore-consistency": _web(ops.OpInstanceFailover, ignore_consistency=True),
    "failover to any": _web(ops.OpInstanceFailover, target_node=SPARE),
    "failover to any --ignore-consistency": _web(
        ops.OpInstanceFailover, target_node=SPARE, ignore_consistency=True
    ),
    "failover to any, the primary stays": _web(
        ops.OpInstanceFailover, target_node=SPARE, new_secondary=PRIMARY
    ),
    "failover to any, the secondary stays": _web(
        ops.OpInstanceFailover, target_node=SPARE, new_secondary=SECONDARY, wait_for_sync=True
    ),
    "failover to any, it stays --ignore-consistency": _web(
        ops.OpInstanceFailover,
        target_node=SPARE,
        new_secondary=SECONDARY,
        ignore_consistency=True,
    ),
    "migrate": _web(ops.OpInstanceMigrate),
    "migrate to any": _web(ops.OpInstanceMigrate, target_node=SPARE),
    "migrate --allow-failover": _web(ops.OpInstanceMigrate, allow_failover=True),
    "evacuate": Operation(
        lambda: [OpNodeEvacuate(node_name=PRIMARY, mode="all", remote_node=SPARE)]
    ),
    "evacuate --secondary-only": Operation(
        lambda: [OpNodeEvacuate(node_name=SECONDARY, mode="secondary-only", remote_node=SPARE)]
    ),
    "replace-disks -p": _replace("replace_on_primary"),
    "replace-disks -s": _replace("replace_on_secondary"),
    "replace-disks -n": _replace("replace_new_secondary", remote_node=SPARE),
    "replace-disks -n --early-release": _replace(
        "replace_new_secondary", remote_node=SPARE, early_release=True
    ),
    "replace-disks -a": _replace("replace_auto"),
    "convert to plain": _modify(disk_template="plain"),
    "convert to file": _modify(disk_template="file", file_driver="loop"),
    "recreate-disks": _web(ops.OpInstanceRecreateDisks),
    "recreate-disks elsewhere": _web(ops.OpInstanceRecreateDisks, nodes=[PRIMARY, SPARE]),
    "grow-disk": _web(ops.OpInstanceGrowDisk, disk=0, amount=1),
    "reinstall": _web(ops.OpInstanceReinstall),
    "rename": _web(ops.OpInstanceRename, new_name=NEW_NAME),
    "remove": _web(ops.OpInstanceRemove)._replace(destroys=True),
    "remove --ignore-failures": _web(ops.OpInstanceRemove, ignore_failures=True)._replace(
        destroys=True
    ),
    "export": Operation(lambda: [OpBackupExport(instance_name=WEB, target_node=SPARE)]),
    "export --noshutdown": Operation(
        lambda: [OpBackupExport(instance_name=WEB, target_node=SPARE, shutdown=False)]
    ),
    "export --remove-instance": Operation(
        lambda: [OpBackupExport(instance_name=WEB, target_node=SPARE, remove_instance=True)]
    ),
    "snapshot": _web(ops.OpInstanceSnapshot, snapshot_name=_SNAPSHOT),
    "snapshot, restore": Operation(
        lambda: [
            ops.OpInstanceSnapshot(instance_name=WEB, snapshot_name=_SNAPSHOT),
            ops.OpInstanceSnapshotRestore(instance_name=WEB, snapshot_name=_SNAPSHOT),
        ]
    ),
    "snapshot, remove it": Operation(
        lambda: [
            ops.OpInstanceSnapshot(instance_name=WEB, snapshot_name=_SNAPSHOT),
            ops.OpInstanceSnapshotRemove(instance_name=WEB, snapshot_name=_SNAPSHOT),
        ]
    ),
    "add disk": _modify(disks=[["add", -1, {"size": 1}]]),
    "remove disk": _modify(disks=[["remove", 0, {}]])._replace(destroys=True),
    "detach disk": _modify(disks=[["detach", 0, {}]])._replace(repair=_attach_again),
    "detach disk, attach it": Operation(
        lambda: [
            ops.OpInstanceSetParams(instance_name=WEB, disks=[["modify", 0, {"name": "data"}]]),
            ops.OpInstanceSetParams(instance_name=WEB, disks=[["detach", 0, {}]]),
            ops.OpInstanceSetParams(instance_name=WEB, disks=[["attach", -1, {"name": "data"}]]),
        ],
        repair=_attach_again,
    ),
    "mark the primary offline": Operation(
        lambda: [OpNodeSetParams(node_name=PRIMARY, offline=True)]
    ),
    "mark the secondary offline": Operation(
        lambda: [OpNodeSetParams(node_name=SECONDARY, offline=True)]
    ),
    "repair-storage of the primary": _repair_storage(PRIMARY),
    "repair-storage of the primary --ignore-consistency": _repair_storage(PRIMARY, True),
    "repair-storage of the secondary": _repair_storage(SECONDARY),
    "repair-disk-sizes": Operation(lambda: [OpClusterRepairDiskSizes(instances=[WEB])]),
}
