"""Describe instances with all details, for ``gnt-instance info``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, TypedDict

from ganeti import errors
from ganeti.cmdlib import prereq
from ganeti.cmdlib.base import DeviceKey, LogicalUnit, executes, why
from ganeti.cmdlib.ops.disks import devices as disk_work
from ganeti.cmdlib.ops.disks import replica_report
from ganeti.cmdlib.ops.disks.calls import call_for_disks
from ganeti.cmdlib.ops.liveness import location
from ganeti.locking import ALL, Level
from ganeti.objects import BlockDevStatus, Disk, Instance, codec, fill, halt
from ganeti.opcodes.instance import OpInstanceQueryData
from ganeti.wire.calls import BLOCKDEV_FIND_MULTI, GUEST_DETAILS

if TYPE_CHECKING:
    from ganeti.objects import FilledNic


class MirrorDetails(TypedDict):
    """The nodes of a mirrored disk, in the order of the configuration; the keys are published."""

    primary_node: str
    primary_node_uuid: str
    primary_minor: int
    secondary_node: str
    secondary_node_uuid: str
    secondary_minor: int
    port: int


DiskStatus: TypeAlias = list[Any]
"""State of a device on a node: path, major and minor number, percentage of the synchronisation,
seconds until its end, whether the device is degraded, state of its storage (``LDS_*``)."""

NicDetails: TypeAlias = list[Any]
"""A NIC: name, UUID, IP, MAC, mode, link, VLAN, UUID of its network, and that network as a
dictionary with the fields of :class:`ganeti.objects.Network`, None without a network; then its
further IPv6 address, where it has one."""


class DiskDetails(TypedDict):
    """A device; the keys are published, except ``replicas``. ``size`` is in MiB.

    ``replicas`` is there for mirrored disks, with the members of :class:`.ReplicaReport`.
    """

    iv_name: str
    dev_type: str
    logical_id: list[Any]
    drbd_info: MirrorDetails | None
    pstatus: DiskStatus | None
    sstatus: DiskStatus | None
    children: list[DiskDetails]
    mode: str
    size: int
    spindles: int | None
    name: str | None
    uuid: str
    replicas: NotRequired[dict[str, Any]]


class GuestDetails(TypedDict):
    """A running guest. ``started`` is in seconds since 1970, None when its node does not know it.

    ``addresses`` has pairs of an address and who knows it: ``guest agent``, ``lease`` or
    ``seen by the node``. ``memory`` is in MiB.
    """

    memory: int
    vcpus: int
    started: float | None
    addresses: list[list[str]]


class InstanceDetails(TypedDict):
    """An instance; the keys are published, except ``guest``, ``kept_volumes``, ``halt`` and
    ``pending_changes``.

    These keys are there when the instance has some, or when its guest runs, or lives and does not
    run (:mod:`ganeti.objects.halt`, and ``remedy``). Parameters in ``*_actual`` are filled.
    """

    name: str
    config_state: str
    run_state: str | None
    pnode: str | None
    pnode_group_uuid: str | None
    pnode_group_name: str | None
    snodes: list[str]
    snodes_group_uuids: list[str]
    snodes_group_names: list[str]
    os: str
    nics: list[NicDetails]
    disk_template: str
    disks: list[DiskDetails]
    hypervisor: str
    network_port: int | None
    hv_instance: dict[str, Any]
    hv_actual: dict[str, Any]
    be_instance: dict[str, Any]
    be_actual: dict[str, Any]
    os_instance: dict[str, Any]
    os_actual: dict[str, Any]
    serial_no: int
    mtime: float
    ctime: float
    uuid: str
    forthcoming: NotRequired[bool]
    guest: NotRequired[GuestDetails]
    pending_changes: NotRequired[list[str]]
    kept_volumes: NotRequired[list[replica_report.KeptVolume]]
    halt: NotRequired[dict[str, str]]


_Reports: TypeAlias = dict[DeviceKey, replica_report.NodeReport]


@executes(OpInstanceQueryData)
class LUInstanceQueryData(LogicalUnit[OpInstanceQueryData, list[Instance]]):
    """Return for each instance its details; the keys are published."""

    def expand_names(self) -> None:
        self.wanted = [self.config.expand_instance(name) for name in self.op.instances]
        if self.op.use_locking:
            uuids = [instance.uuid for instance in self.wanted] or ALL
            self.need(Level.INSTANCE, uuids, shared=True)

    def declare_locks(self, level: Level) -> None:
        if not self.op.use_locking or level not in (Level.NODEGROUP, Level.NODE):
            return
        nodes = {uuid for inst in self._instances() for uuid in self.config.instance_nodes(inst)}
        if level is Level.NODE:
            self.need(level, nodes, shared=True)
        else:
            self.need(level, {self.config.node(uuid).group for uuid in nodes}, shared=True)

    def _instances(self) -> list[Instance]:
        if not self.op.instances:
            return list(self.config.instances())
        return [self.config.instance(instance.uuid) for instance in self.wanted]

    def check_prereq(self) -> list[Instance]:
        return self._instances()

    def exec(self, plan: list[Instance]) -> dict[str, InstanceDetails]:
        return {instance.name: self._facts(instance) for instance in plan}

    def _guest(self, instance: Instance) -> Mapping[str, Any] | None:
        """Return the facts of the guest from the primary node, which are empty when it has none.

        :returns: None when only static data are wanted, or when the node does not tell.
        """
        if self.op.static or instance.forthcoming:
            return None
        node = self.config.node(instance.primary_node)
        if node.offline:
            return None
        try:
            return location.info_on_primary(self.config, self.rpc, instance)
        except errors.RpcError as err:
            self.log.warn(f"node {node.name} did not report instance {instance.name}: {why(err)}")
            return None

    @staticmethod
    def _run_state(instance: Instance, info: Mapping[str, Any] | None) -> str | None:
        """``up``, ``down``, or None when the state is not known."""
        if info is None:
            return None
        if prereq.is_running(info):
            return prereq.ADMIN_UP
        if instance.admin_state == prereq.ADMIN_UP:
            return prereq.ADMIN_DOWN
        return instance.admin_state

    def _facts(self, instance: Instance) -> InstanceDetails:
        filled = self.config.filled(instance)
        guest = self._guest(instance)
        nodes = self.config.snapshot().nodes
        # The node of a forthcoming instance may not be decided yet.
        node = (
            nodes.get(instance.primary_node)
            if instance.forthcoming
            else self.config.node(instance.primary_node)
        )
        secondaries = [self.config.node(uuid) for uuid in self.config.secondary_nodes(instance)]
        groups = self.config.snapshot().nodegroups
        details: InstanceDetails = {
            "name": instance.name,
            "config_state": instance.admin_state,
            "run_state": self._run_state(instance, guest),
            "pnode": None if node is None else node.name,
            "pnode_group_uuid": None if node is None else node.group,
            "pnode_group_name": None if node is None else groups[node.group].name,
            "snodes": [secondary.name for secondary in secondaries],
            "snodes_group_uuids": [secondary.group for secondary in secondaries],
            "snodes_group_names": [groups[secondary.group].name for secondary in secondaries],
            "os": instance.os,
            "nics": [self._nic(nic) for nic in filled.nics],
            "disk_template": filled.disk_template,
            "disks": self._disks(instance, filled.disks_info),
            "hypervisor": instance.hypervisor,
            "network_port": instance.network_port,
            "hv_instance": dict(instance.hvparams),
            # Parameters which only the cluster can set are left out.
            "hv_actual": fill.instance_hv(self.config.cluster(), instance, skip_globals=True),
            "be_instance": dict(instance.beparams),
            "be_actual": dict(filled.beparams),
            "os_instance": dict(instance.osparams),
            "os_actual": dict(filled.osparams),
            "serial_no": instance.serial_no,
            "mtime": instance.mtime,
            "ctime": instance.ctime,
            "uuid": instance.uuid,
        }
        if instance.forthcoming:
            details["forthcoming"] = True
        if instance.pending_changes:
            details["pending_changes"] = sorted(instance.pending_changes)
        if self.op.with_guest and guest is not None and prereq.is_running(guest):
            details["guest"] = self._running(instance, guest)
        found = halt.of_facts(guest)
        if found is not None:
            details["halt"] = {**found._asdict(), "remedy": found.remedy(instance.name)}
        kept = replica_report.kept_volumes(self.config, self.rpc, instance, ask=not self.op.static)
        if kept:
            details["kept_volumes"] = kept
        return details

    def _running(self, instance: Instance, info: Mapping[str, Any]) -> GuestDetails:
        """Describe a running guest; a node of the release before does not know all of it."""
        answer = self.rpc.call(
            GUEST_DETAILS,
            instance.primary_node,
            guests={
                instance.name: [instance.hypervisor, [nic.mac for nic in instance.nics if nic.mac]]
            },
        )
        known = {} if answer.failure is not None else answer.data
        seen = known.get(instance.name, {"started": None, "addresses": []})
        return {
            "memory": info["memory"],
            "vcpus": info["vcpus"],
            "started": seen["started"],
            "addresses": seen["addresses"],
        }

    def _nic(self, nic: FilledNic) -> NicDetails:
        network = self.config.snapshot().networks.get(nic.network) if nic.network else None
        params = nic.nicparams
        # Ganeti has nine members; the further address comes behind them, where there is one.
        further = [nic.ip6] if nic.ip6 else []
        return [
            nic.name,
            nic.uuid,
            nic.ip,
            nic.mac,
            params.get("mode"),
            params.get("link"),
            params.get("vlan"),
            nic.network,
            None if network is None else codec.to_dict(network),
            *further,
        ]

    def _disks(self, instance: Instance, disks: Sequence[Disk]) -> list[DiskDetails]:
        """Describe the disks of an instance."""
        parts: dict[str, list[Disk]] = {}
        for disk in disks:
            for uuid in disk_work.disk_nodes(disk, instance.primary_node):
                if uuid:
                    parts.setdefault(uuid, []).extend(disk.walk())
        asked = not (self.op.static or instance.forthcoming)
        online = {
            uuid: devices
            for uuid, devices in parts.items()
            if asked and not self.config.node(uuid).offline
        }
        reports: _Reports = {}
        for uuid, answers in call_for_disks(
            self.rpc, BLOCKDEV_FIND_MULTI, online, instance
        ).items():
            for device, answer in zip(parts[uuid], answers, strict=True):
                if answer.failure is not None:
                    self.log.warn(
                        f"node {answer.node_name} did not report {device.iv_name} of instance"
                        f" {instance.name}"
                    )
                reports[uuid, device.dev_type, device.logical_id] = (
                    answer.data if answer.failure is None else why(answer.failure)
                )
        unasked = "it is offline" if asked else "it was not asked"
        return [self._disk(instance, disk, reports, unasked) for disk in disks]

    def _disk(
        self,
        instance: Instance,
        disk: Disk,
        reports: _Reports,
        unasked: str,
        secondary: str | None = None,
    ) -> DiskDetails:
        """Describe a device and its children.

        :param reports: what the nodes reported.
        :param unasked: why there is no report of a node.
        :param secondary: UUID of the node with the other replica; set here for a mirrored disk.
        """
        for uuid in disk.secondary_nodes(instance.primary_node):
            secondary = uuid
        own = {
            uuid: reports.get((uuid, disk.dev_type, disk.logical_id), unasked)
            for uuid in (instance.primary_node, secondary)
            if uuid
        }
        details: DiskDetails = {
            "iv_name": disk.iv_name,
            "dev_type": disk.dev_type,
            "logical_id": _without_secret(disk),
            "drbd_info": self._mirror(disk),
            "pstatus": _status(own.get(instance.primary_node)),
            "sstatus": _status(own.get(secondary)) if secondary else None,
            "children": [
                self._disk(instance, child, reports, unasked, secondary) for child in disk.children
            ],
            "mode": disk.mode,
            "size": disk.size,
            "spindles": disk.spindles,
            "name": disk.name,
            "uuid": disk.uuid,
        }
        if disk.has_replicas and not instance.forthcoming:
            asked = {} if self.op.static else own
            known = replica_report.judge(disk, instance, self.config.snapshot().nodes, asked)
            details["replicas"] = known._asdict()
        return details

    def _mirror(self, disk: Disk) -> MirrorDetails | None:
        """Describe the two replicas of a mirrored disk, in the order of the configuration."""
        if not disk.has_replicas:
            return None
        first, second, port, first_minor, second_minor, _secret = disk.drbd_id
        return {
            "primary_node": self.config.node(first).name,
            "primary_node_uuid": first,
            "primary_minor": first_minor,
            "secondary_node": self.config.node(second).name,
            "secondary_node_uuid": second,
            "secondary_minor": second_minor,
            "port": port,
        }


def _status(report: replica_report.NodeReport) -> DiskStatus | None:
    if not isinstance(report, BlockDevStatus):
        return None
    return [
        report.dev_path,
        report.major,
        report.minor,
        report.sync_percent,
        report.estimated_time,
        report.is_degraded,
        report.ldisk_status,
    ]


def _without_secret(disk: Disk) -> list[Any]:
    """Return the logical id of a device, without the secret which DRBD replicas share."""
    if disk.has_whole_drbd_id:
        return list(disk.drbd_id._replace(secret=""))
    return list(disk.logical_id)
