"""Exporting an instance to a node of the cluster, or to another cluster.

If the storage has snapshots (logical volumes, also those of DRBD disks), the instance is stopped
only while they are taken. Otherwise it stays down until its disks have been sent, which the user
must allow (``long_sleep``). ``admin_state`` stays *up* all the time: if the master dies in between,
the watcher starts the instance again.

At the end, after a success or a failure, the instance runs again if it ran before (and is not to be
removed), its snapshots have been removed, and a failed export has been removed from the target.

Nothing is destroyed before the new export is proved good: an older export on the target is replaced
by the node in one step, and those on other nodes and the instance itself are removed only after the
target has described the complete export, with every disk.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import LogicalUnit, executes, why
from ganeti.cmdlib.hooks import InstanceHooks
from ganeti.cmdlib.ops.disks import capacity, sizes, snapshots
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks.calls import call_for_disks
from ganeti.cmdlib.ops.guest import helper, power
from ganeti.cmdlib.ops.guest.removal import remove_instance
from ganeti.cmdlib.ops.liveness import location
from ganeti.cmdlib.ops.transfer import disk_copy, export_description, exports, handshake, seal
from ganeti.cmdlib.ops.transfer import zero_free_space as zeroing
from ganeti.constants import disk as disk_c
from ganeti.constants.instance import EXPORT_LOCAL, EXPORT_REMOTE
from ganeti.locking import Level
from ganeti.objects import Disk, Instance, Node, disk_templates
from ganeti.objects.transfer import ImportExportOptions
from ganeti.opcodes.backup import OpBackupExport
from ganeti.platform import paths
from ganeti.wire.calls import (
    BLOCKDEV_FIND_MULTI,
    BLOCKDEV_GETDIMENSIONS,
    BLOCKDEV_REMOVE,
    BLOCKDEV_SNAPSHOT,
)
from ganeti.wire.calls import backup as calls
from ganeti.wire.calls.base import Failed


@dataclass(frozen=True, slots=True)
class RemoteTarget:
    """The other cluster as the target of an export.

    :ivar key_name: name of the key on the source node.
    :ivar ca_pem: certificate of the other cluster.
    :ivar disks: for each disk host, port and magic of its import.
    """

    key_name: str
    ca_pem: str
    disks: tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class ExportPlan:
    """Source and target of an export.

    :ivar source: the primary node of the instance.
    :ivar running: whether the guest runs now.
    :ivar target: the target node; None for an export to another cluster.
    :ivar remote: the other cluster; None for an export to a node.
    :ivar identity: of the new export, random, with the seal of the cluster; empty until it begins,
        and for a target whose release has none.
    :ivar zeroing: work of the helper guest which overwrites free space first; None for no work.
    """

    instance: Instance
    source: Node
    running: bool
    target: Node | None
    remote: RemoteTarget | None
    identity: str
    zeroing: helper.HelperTask | None = None


@executes(OpBackupExport)
class LUBackupExport(LogicalUnit[OpBackupExport, ExportPlan]):
    """Export an instance."""

    HOOKS = InstanceHooks("instance-export")

    def expand_names(self) -> None:
        op = self.op
        self.lock_instance(op.instance_name, op.instance_uuid)
        self.target: Node | None = None
        if op.mode == EXPORT_LOCAL:
            if not isinstance(op.target_node, str):
                raise errors.OpPrereqError(
                    "the target of a local export must be a node", errors.ECODE_INVAL
                )
            self.target = self.config.expand_node(op.target_node_uuid or op.target_node)
        elif op.x509_key_name is None or op.destination_x509_ca is None:
            raise errors.OpPrereqError(
                "an export to another cluster needs the name of the key of this cluster and the"
                " certificate of the other one. The program move-instance gets both.",
                errors.ECODE_INVAL,
            )
        zeroing.check_arguments(op)
        if op.remove_instance and not op.shutdown:
            raise errors.OpPrereqError(
                "an instance can be removed after its export only if it is shut down before",
                errors.ECODE_INVAL,
            )
        if op.ignore_remove_failures and not op.remove_instance:
            raise errors.OpPrereqError(
                "failures of the removal can only be ignored when the instance is to be removed",
                errors.ECODE_INVAL,
            )
        disk_copy.require_compression(self.config, op.compress)

    def declare_locks(self, level: Level) -> None:
        assert self.instance is not None
        if level is Level.NODE:
            self.lock_nodes_of(self.instance, shared=True)
            if self.target is not None:
                self.lock_nodes([self.target.uuid], shared=True)
        elif level is Level.NODE_RES and self.op.remove_instance:
            self.need(level, self.config.instance_nodes(self.instance))

    def hook_env(self, plan: ExportPlan) -> dict[str, object]:
        op = self.op
        return {
            "EXPORT_MODE": op.mode,
            "EXPORT_NODE": plan.target.name if plan.target is not None else op.target_node,
            "EXPORT_DO_SHUTDOWN": op.shutdown,
            "SHUTDOWN_TIMEOUT": op.shutdown_timeout,
            "REMOVE_INSTANCE": op.remove_instance,
        }

    def hook_nodes(self, plan: ExportPlan) -> tuple[list[str], list[str]]:
        nodes = [self.config.master_node().uuid, plan.source.uuid]
        if plan.target is not None:
            nodes.append(plan.target.uuid)
        return nodes, nodes

    # -- check -----------------------------------------------------------------

    def check_prereq(self) -> ExportPlan:
        assert self.instance is not None
        instance = self.instance
        prereq.require_not_forthcoming(instance, "export")
        source = self.config.node(instance.primary_node)
        prereq.require_online(source)
        snapshots.require_restored(self.log, instance)
        target = None
        if self.target is not None:
            target = self.config.node(self.target.uuid)
            prereq.require_online(target)
            prereq.require_not_drained(target)
        remote = self._remote_target(instance) if self.op.mode == EXPORT_REMOTE else None
        running = prereq.is_running(
            location.require_only_on_primary(self.ctx, instance, certain_to="export")
        )
        disks = self.config.instance_disks(instance)
        self._require_complete_replicas(instance, source, disks)
        slow = sorted(
            {disk.dev_type for disk in disks if disk.dev_type not in disk_templates.LVM_BASED}
        )
        # The instance stays down anyway when it is moved to another cluster or removed.
        moves = self.op.mode == EXPORT_REMOTE or self.op.remove_instance
        if running and slow and not self.op.long_sleep and not moves:
            raise errors.OpPrereqError(
                f"instance {instance.name} has disks of template {', '.join(slow)}, which have no"
                " snapshots, so it must stay shut down until they are exported. Allow that with"
                " --long-sleep.",
                errors.ECODE_STATE,
            )
        self._require_snapshot_space(instance, source, disks)
        if target is not None and disks:
            exports.require_space(self.ctx, instance, source, target, disks)
        work = zeroing.plan(self.config, self.op, instance, source, running=running)
        return ExportPlan(instance, source, running, target, remote, "", work)

    def _require_complete_replicas(
        self, instance: Instance, source: Node, disks: Sequence[Disk]
    ) -> None:
        """Check active mirrored disks before the guest is stopped; the snapshot itself decides.

        :raises errors.OpPrereqError: the replica on the primary node has not all data.
        """
        if not instance.disks_active:
            return
        mirrored = [disk for disk in disks if disk.has_replicas]
        answers = call_for_disks(self.rpc, BLOCKDEV_FIND_MULTI, {source.uuid: mirrored}, instance)
        for disk, answer in zip(mirrored, answers[source.uuid], strict=True):
            status = answer.payload()
            if status is None or status.ldisk_status != disk_c.LDS_OKAY:
                raise errors.OpPrereqError(
                    f"disk {disks.index(disk)} of instance {instance.name} has no complete replica"
                    f" on node {source.name}, which would be exported. Wait until it is in sync, or"
                    f" replace its storage with 'gnt-instance replace-disks -p {instance.name}'.",
                    errors.ECODE_STATE,
                )

    def _require_snapshot_space(
        self, instance: Instance, source: Node, disks: Sequence[Disk]
    ) -> None:
        """Check before the guest is stopped that its volume groups can take all snapshots.

        :raises errors.OpPrereqError: they cannot, or the node did not say it.
        """
        based = [disk for disk in disks if disk.dev_type in disk_templates.LVM_BASED]
        if not based:
            return
        needed: dict[str, int] = {}
        for disk in sizes.real(self.rpc, instance, based):
            group = disk.data_device.volume_id.group
            needed[group] = needed.get(group, 0) + disk.size
        left = [_snapshot_of(disk) for disk in based]
        answer = self.rpc.call(
            BLOCKDEV_GETDIMENSIONS, source.uuid, disks=[(one, instance) for one in left]
        )
        # An interrupted export has left them, and this one removes them first. One of which nothing
        # is known does not count as free space.
        found = [] if answer.failure is not None else zip(left, answer.data, strict=True)
        for one, dimensions in found:
            if not isinstance(dimensions, Failed | None):
                needed[one.volume_id.group] -= dimensions[0] >> 20
        capacity.require_free_space(
            self.config,
            self.rpc,
            [source.uuid],
            {group: size for group, size in needed.items() if size > 0},
        )

    def _remote_target(self, instance: Instance) -> RemoteTarget:
        op, secret = self.op, handshake.domain_secret()
        given = op.target_node
        if not isinstance(given, list | tuple) or len(given) != len(instance.disks):
            raise errors.OpPrereqError(
                f"instance {instance.name} has {len(instance.disks)} disks, and the target must"
                " have an address for each of them",
                errors.ECODE_INVAL,
            )
        return RemoteTarget(
            key_name=handshake.check_key(secret, op.x509_key_name),
            ca_pem=handshake.check_certificate(
                secret, op.destination_x509_ca, "certificate of the other cluster"
            ),
            disks=tuple(
                handshake.check_disk(secret, index, entry) for index, entry in enumerate(given)
            ),
        )

    # -- act -------------------------------------------------------------------

    def exec(self, plan: ExportPlan) -> tuple[bool, list[bool]]:
        if plan.target is not None:
            plan = self._prepare_target(plan, plan.target)
        try:
            arrived = self._export(plan)
        finally:
            if plan.remote is not None:
                # The key was made for this one export.
                self._best_effort(
                    "the key for this export",
                    calls.X509_CERT_REMOVE,
                    plan.source.uuid,
                    name=plan.remote.key_name,
                )
        if plan.target is not None:
            self._require_exported(
                plan,
                plan.target,
                kept="the instance and older exports on other nodes were not removed",
            )
            exports.remove_older(self.ctx, plan.instance.name, plan.target.uuid, plan.identity)
        if self.op.remove_instance:
            if plan.target is not None:
                # Directly before the only other copy of the data goes.
                self._require_exported(plan, plan.target, kept="the instance was not removed")
            self.log.feedback(f"Removing instance {plan.instance.name}")
            remove_instance(
                self.ctx,
                self.config.instance(plan.instance.uuid),
                timeout_s=self.op.shutdown_timeout,
                reason=self.op.reason,
                ignore_failures=self.op.ignore_remove_failures,
            )
        return True, arrived

    def _prepare_target(self, plan: ExportPlan, target: Node) -> ExportPlan:
        """Remove what interrupted exports have left, and make the identity of the new export."""
        found = exports.find(self.config, self.rpc, plan.instance.name)
        exports.remove_unfinished(self.ctx, plan.instance.name, found)
        if target.uuid in found.former:
            return plan
        filled = self.config.filled(plan.instance)
        return replace(plan, identity=seal.sealed_identity(self.ctx, filled))

    def _export(self, plan: ExportPlan) -> list[bool]:
        """Send all disks; start the instance again if it was stopped."""
        instance = plan.instance
        stopped = plan.running and self.op.shutdown
        if stopped:
            self.log.feedback(f"Shutting down instance {instance.name}")
            power.stop(self.config, self.rpc, instance, self.op.shutdown_timeout, self.op.reason)
        elif plan.running:
            self.log.warn(
                f"instance {instance.name} is not shut down, so the export may have only a part of"
                " what it writes meanwhile"
            )
        activated = False
        snapshots: list[Disk] = []
        try:
            if not instance.disks_active:
                self.log.feedback(f"Activating disks for {instance.name}")
                disk_work.assemble_disks(self.ctx, instance)
                activated = True
            if plan.zeroing is not None:
                helper.run(self.ctx, instance, plan.zeroing)
            sent = self._disks_to_send(plan, snapshots)
            again = stopped and not self.op.remove_instance
            if again and len(snapshots) == len(sent):
                stopped = not self._restart(instance)
            return self._send(plan, sent)
        finally:
            for snapshot in snapshots:
                self._best_effort(
                    f"snapshot {'/'.join(snapshot.logical_id)}",
                    BLOCKDEV_REMOVE,
                    plan.source.uuid,
                    disk=(snapshot, instance),
                )
            if stopped and not self.op.remove_instance:
                self._restart(instance)
            elif activated:
                self.log.feedback(f"Deactivating disks for {instance.name}")
                self._deactivate(instance)

    def _restart(self, instance: Instance) -> bool:
        """Start the instance again; a failure is a warning, which does not hide other errors.

        :returns: whether it was started.
        """
        self.log.feedback(f"Starting instance {instance.name}")
        try:
            power.start(self.ctx, self.config.instance(instance.uuid), self.op.reason)
        except errors.OpExecError as err:
            self.log.warn(str(err), hint=f"Start it with 'gnt-instance startup {instance.name}'.")
            return False
        return True

    def _deactivate(self, instance: Instance) -> None:
        try:
            disk_work.shutdown_disks(self.config, self.rpc, instance)
        except errors.OpExecError as err:
            self.log.warn(str(err))

    def _disks_to_send(self, plan: ExportPlan, snapshots: list[Disk]) -> list[Disk]:
        """Take a snapshot of each disk which can have one; returns the snapshots and other disks.

        :param snapshots: each snapshot is appended at once, for the clean-up.
        """
        found = []
        disks = sizes.real(self.rpc, plan.instance, self.config.instance_disks(plan.instance))
        for disk in disks:
            snapshot = None
            if disk.dev_type in disk_templates.LVM_BASED:
                self.log.feedback(f"Creating a snapshot of {disk.iv_name} on {plan.source.name}")
                snapshot = self._snapshot(plan, disk)
                snapshots.append(snapshot)
            found.append(snapshot or disk)
        return found

    def _snapshot(self, plan: ExportPlan, disk: Disk) -> Disk:
        snapshot = _snapshot_of(disk)
        group, volume = snapshot.logical_id
        # An interrupted export may have left a snapshot. No other job can have taken it, because
        # this job holds the lock of the instance.
        self._best_effort(
            f"an older snapshot {group}/{volume}",
            BLOCKDEV_REMOVE,
            plan.source.uuid,
            disk=(snapshot, plan.instance),
        )
        answer = self.rpc.call(
            BLOCKDEV_SNAPSHOT,
            plan.source.uuid,
            disk=(disk, plan.instance),
            snapshot_name=volume,
            snapshot_size_mib=0,
        )
        if answer.failure is not None:
            raise errors.OpExecError(
                f"could not take a snapshot of {disk.iv_name} of instance {plan.instance.name} on"
                f" node {plan.source.name}: {why(answer.failure)}"
            ) from answer.failure
        return replace(snapshot, logical_id=tuple(answer.data))

    def _send(self, plan: ExportPlan, sent: list[Disk]) -> list[bool]:
        arrived = (
            self._send_local(plan, plan.target, sent)
            if plan.target is not None
            else self._send_remote(plan, sent)
        )
        failed = [f"disk/{index}" for index, ok in enumerate(arrived) if not ok]
        if failed:
            raise errors.OpExecError(
                f"export of instance {plan.instance.name} failed: {', '.join(failed)} did not"
                " arrive"
            )
        return arrived

    def _send_local(self, plan: ExportPlan, target: Node, sent: list[Disk]) -> list[bool]:
        instance = plan.instance
        unfinished = calls.unfinished(instance.name, plan.identity)
        # The path as it is in node calls: in a virtual cluster each node adds its own root.
        base = posixpath.join(paths.Paths().export_dir, unfinished)
        complete = False
        try:
            arrived = disk_copy.copy_disks(
                self.rpc,
                self.log,
                [
                    disk_copy.pair(
                        self.config,
                        instance,
                        index,
                        source=(plan.source, (calls.SCRIPT, (disk, instance, index))),
                        target=(target, (calls.FILE, posixpath.join(base, disk.uuid))),
                        compress=self.op.compress,
                    )
                    for index, disk in enumerate(sent)
                ],
            )
            if all(arrived):
                self.log.feedback(f"Finalizing export on {target.name}")
                answer = self.rpc.call(
                    calls.FINALIZE_EXPORT,
                    target.uuid,
                    instance=instance,
                    disks=[(disk, instance) for disk in sent],
                    identity=plan.identity,
                )
                if answer.failure is not None:
                    raise errors.OpExecError(
                        f"export of instance {instance.name} could not be finalized on node"
                        f" {target.name}: {why(answer.failure)}"
                    ) from answer.failure
                complete = True
        finally:
            if not complete:
                self._best_effort(
                    f"the incomplete export on node {target.name}",
                    calls.EXPORT_REMOVE,
                    target.uuid,
                    export=unfinished,
                    identity="",
                )
        return arrived

    def _send_remote(self, plan: ExportPlan, sent: list[Disk]) -> list[bool]:
        assert plan.remote is not None
        instance, remote = plan.instance, plan.remote
        ends = []
        for index, (disk, (host, port, magic)) in enumerate(zip(sent, remote.disks, strict=True)):
            self.log.feedback(f"Sending disk/{index} to {host}:{port}")
            options = ImportExportOptions(
                key_name=remote.key_name,
                ca_pem=remote.ca_pem,
                compress=self.op.compress,
                magic=magic,
                ipv6=disk_copy.uses_ipv6(self.config),
                connect_timeout=disk_copy.REMOTE_CONNECT_S,
            )
            ends.append(
                disk_copy.TransferEnd(
                    disk_copy.EXPORT,
                    plan.source,
                    instance,
                    f"disk/{index}",
                    (calls.SCRIPT, (disk, instance, index)),
                    options,
                    host=host,
                    port=port,
                )
            )
        disk_copy.run(self.rpc, self.log, ends)
        return [end.ok for end in ends]

    def _require_exported(self, plan: ExportPlan, target: Node, *, kept: str) -> None:
        """Check that the target has this complete export with every disk.

        :param kept: what has not been removed, for the message.
        :raises errors.OpExecError: it has not, or it does not answer.
        """
        instance = plan.instance
        what = f"the export of instance {instance.name} on node {target.name}"
        answer = self.rpc.call(calls.EXPORT_INFO, target.uuid, path=instance.name)
        if answer.failure is not None:
            raise errors.OpExecError(
                f"{what} cannot be checked: {why(answer.failure)}; {kept}"
            ) from answer.failure
        try:
            found = export_description.parse(answer.data, self.log.warn)
        except errors.OpPrereqError as err:
            raise errors.OpExecError(f"{what} is not usable: {err}; {kept}") from err
        dumps = {disk.dump for disk in found.disks}
        missing = [
            f"disk/{index}" for index, uuid in enumerate(instance.disks) if uuid not in dumps
        ]
        if missing or found.name != instance.name:
            raise errors.OpExecError(
                f"{what} is not usable: it is of instance {found.name}, and"
                f" {', '.join(missing) or 'no disk'} is missing; {kept}"
            )
        if (found.identity or "") != plan.identity:
            raise errors.OpExecError(
                f"{what} is not the one that was just made: another export has taken its"
                f" place; {kept}"
            )

    def _best_effort(self, what: str, call: Any, node_uuid: str, **args: Any) -> None:
        """Make a node call which cleans up; a failure is a warning.

        :param what: the object to be removed, for the warning; empty for no warning.
        """
        answer = self.rpc.call(call, node_uuid, **args)
        if answer.failure is not None and what:
            self.log.warn(f"{what} could not be removed: {why(answer.failure)}")


def _snapshot_of(disk: Disk) -> Disk:
    """Return the snapshot of a disk which an export makes."""
    # The data volume of a mirrored disk is a plain volume, and so is its snapshot.
    inner = disk.children[0] if disk.children else disk
    group, volume = inner.volume_id
    return replace(
        disk,
        dev_type=disk_c.PLAIN,
        logical_id=(group, f"{volume}.snap"),
        children=(),
        params=None,
        dynamic_params=None,
    )
