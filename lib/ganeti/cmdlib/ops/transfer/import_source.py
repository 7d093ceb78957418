"""Making an instance from an export, or from one in another cluster.

Both happen while an instance is created (:mod:`ganeti.cmdlib.instance.create`), in the place where
otherwise an OS is installed. :func:`prepare` completes the disk_specs of the user with what the export
says, before anything else looks at them; :meth:`Import.run` fills the new disks.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ganeti import errors, ht
from ganeti.cmdlib.base import AnyUnit, why
from ganeti.cmdlib.ops.transfer import disk_copy, export_description, handshake, signed
from ganeti.cmdlib.ops.transfer.exports import nodes_with_export
from ganeti.constants.disk import DISKLESS
from ganeti.constants.instance import CREATE, IMPORT
from ganeti.constants.net import VALUE_AUTO
from ganeti.objects import fill
from ganeti.objects.transfer import ImportExportOptions
from ganeti.platform import paths
from ganeti.wire.calls import INSTANCE_RUN_RENAME
from ganeti.wire.calls import backup as calls

if TYPE_CHECKING:
    from ganeti.objects import Cluster, Instance, Node
    from ganeti.opcodes.instance import OpInstanceCreate

#: The type of the log entry with which an instance tells a third party where its disks are awaited.
LOG_REMOTE_IMPORT = "remote-import"


class Import(Protocol):
    """Where the content of the new disks comes from."""

    def run(self, unit: AnyUnit, instance: Instance, compress: str) -> None:
        """Fill the disks of an instance, which are active on its primary node.

        :raises errors.OpExecError: a disk did not arrive.
        """

    def hook_env(self) -> dict[str, object]:
        """What hooks are told about the source."""


def prepare(unit: AnyUnit, op: OpInstanceCreate) -> Import | None:
    """Complete the disk_specs for an instance that is imported; None for one that is not.

    Asks nodes for the export, changes only the opcode.

    :raises errors.OpPrereqError: there is no such export, or it does not fit the disk_specs.
    """
    if op.mode == CREATE:
        return None
    disk_copy.require_compression(unit, op.compress)
    if op.no_install:
        unit.info("the disks are imported, so there is nothing that could not be installed")
        op.no_install = False
    # What was accepted at its installation must be accepted when it comes back.
    op.force_variant = True
    return _prepare_local(unit, op) if op.mode == IMPORT else _prepare_remote(unit, op)


# -- from an export in this cluster --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalImport:
    """An export on a node; ``dumps`` has the file of each disk, or None."""

    node: Node
    path: str
    old_name: str
    dumps: tuple[str | None, ...]

    def run(self, unit: AnyUnit, instance: Instance, compress: str) -> None:
        """Copy the files to the disks, and let the OS know of a new name."""
        unit.feedback("* running the instance OS import scripts...")
        primary = unit.config.node(instance.primary_node)
        pairs = [
            disk_copy.pair(
                unit,
                instance,
                index,
                source=(self.node, (calls.FILE, posixpath.join(self.path, dump))),
                target=(primary, (calls.SCRIPT, (disk, instance, index))),
                compress=compress,
            )
            for index, (disk, dump) in enumerate(
                zip(unit.config.instance_disks(instance), self.dumps, strict=False)
            )
            if dump is not None
        ]
        arrived = disk_copy.copy_disks(unit, instance, pairs)
        _require_all(
            instance,
            [receiver.label for (receiver, _), ok in zip(pairs, arrived, strict=True) if not ok],
        )
        _rename(unit, instance, self.old_name)

    def hook_env(self) -> dict[str, object]:
        """The node, the directory, and the files."""
        files = [dump and posixpath.join(self.path, dump) for dump in self.dumps]
        return {
            "SRC_NODE": self.node.name,
            "SRC_PATH": self.path,
            "SRC_IMAGES": " ".join(str(file or False) for file in files),
        }


def _require_all(instance: Instance, failed: list[str]) -> None:
    if failed:
        raise errors.OpExecError(
            f"import of instance {instance.name} failed: {', '.join(failed)} did not arrive"
        )


def _rename(unit: AnyUnit, instance: Instance, old_name: str) -> None:
    """Let the OS change what is on the disks; that it does not is no reason to lose them."""
    if not old_name or old_name == instance.name or not instance.os:
        return
    unit.feedback(f"Running rename script for {instance.name}")
    answer = unit.rpc.call(
        INSTANCE_RUN_RENAME,
        instance.primary_node,
        instance=instance,
        old_name=old_name,
        debug_level=unit.op.debug_level or 0,
    )
    if answer.failure is not None:
        unit.warn(
            f"instance {instance.name} was not told on its disks that it is no longer called"
            f" {old_name}: {why(answer.failure)}"
        )


def _prepare_local(unit: AnyUnit, op: OpInstanceCreate) -> LocalImport:
    node, path = _find(unit, op)
    answer = unit.rpc.call(calls.EXPORT_INFO, node.uuid, path=path)
    if answer.failure is not None:
        raise errors.OpPrereqError(
            f"export {path} on node {node.name} cannot be used: {why(answer.failure)}",
            errors.ECODE_ENVIRON,
        ) from answer.failure
    found = export_description.parse(answer.data, unit.warn)
    dumps = _take_over(unit, op, found)
    return LocalImport(node, path, found.name, dumps)


def _find(unit: AnyUnit, op: OpInstanceCreate) -> tuple[Node, str]:
    """The node with the export, and its (virtual) path there."""
    everywhere = paths.Paths().export_dir
    path = op.src_path or op.instance_name
    absolute = posixpath.join(everywhere, path)
    if op.src_node_uuid or op.src_node:
        node = unit.config.expand_node(op.src_node_uuid or op.src_node or "")
        if node.offline:
            raise errors.OpPrereqError(
                f"node {node.name}, which holds the export, is marked offline", errors.ECODE_STATE
            )
        return node, absolute
    if posixpath.isabs(path):
        raise errors.OpPrereqError(
            "an export which is named by its whole path needs its node, too. Use --src-node.",
            errors.ECODE_INVAL,
        )
    having, unresponsive = nodes_with_export(unit, path)
    if not having:
        hint = f" Not asked: {', '.join(unresponsive)}." if unresponsive else ""
        raise errors.OpPrereqError(
            f"no node has an export {path!r}. See 'gnt-backup list'.{hint}", errors.ECODE_INVAL
        )
    return unit.config.node(having[0]), absolute


def _take_over(
    unit: AnyUnit, op: OpInstanceCreate, found: export_description.Exported
) -> tuple[str | None, ...]:
    """Complete the disk_specs; returns the files for the disks."""
    cluster = unit.config.cluster()
    if op.os_type is None:
        op.os_type = found.os or None
    if not op.disk_template:
        op.disk_template = found.disk_template
    dumps = _take_disks(op, found)
    if op.hypervisor is None and found.hypervisor in cluster.enabled_hypervisors:
        op.hypervisor = found.hypervisor
    hypervisor = op.hypervisor or cluster.enabled_hypervisors[0]
    if hypervisor == found.hypervisor:
        op.hvparams = {**found.hvparams, **op.hvparams}
    elif found.hypervisor is not None:
        unit.info(
            f"the export is of hypervisor {found.hypervisor}, whose parameters mean nothing for"
            f" {hypervisor}"
        )
    given = dict(op.beparams)
    if "memory" in given:
        given["minmem"] = given["maxmem"] = given.pop("memory")
    op.beparams = {**found.beparams, **given}
    if op.os_type == found.os:
        _take_osparams(op, found)
    if not op.nics:
        op.nics = [_nic(unit, op, found, dict(nic)) for nic in found.nics]
    if not op.tags:
        op.tags = list(found.tags)
    if op.identify_defaults:
        _drop_defaults(op, cluster, hypervisor)
    return dumps


def _take_osparams(op: OpInstanceCreate, found: export_description.Exported) -> None:
    """A parameter which the user gives, in whichever visibility, goes before that of the export."""
    given = {*op.osparams, *(op.osparams_private or ()), *(op.osparams_secret or ())}

    def kept(values: dict[str, str]) -> dict[str, str]:
        return {key: value for key, value in values.items() if key not in given}

    op.osparams = {**kept(found.osparams), **op.osparams}
    private = {**kept(found.osparams_private), **(op.osparams_private or {})}
    op.osparams_private = ht.PrivateDict(private) if private else None


def _take_disks(op: OpInstanceCreate, found: export_description.Exported) -> tuple[str | None, ...]:
    if op.disk_template == DISKLESS:
        if any(disk.dump for disk in found.disks):
            raise errors.OpPrereqError(
                f"the export of {found.name} has {len(found.disks)} disks, so the instance cannot"
                " be diskless",
                errors.ECODE_INVAL,
            )
        return ()
    if not op.disks:
        op.disks = [
            {"size": disk.size_mib, **({"name": disk.name} if disk.name else {})}
            for disk in found.disks
        ]
    if len(op.disks) < len(found.disks):
        raise errors.OpPrereqError(
            f"the export of {found.name} has {len(found.disks)} disks, the instance would get"
            f" {len(op.disks)} only",
            errors.ECODE_INVAL,
        )
    for index, (spec, disk) in enumerate(zip(op.disks, found.disks, strict=False)):
        size = spec.get("size", disk.size_mib)
        if spec.get("adopt") or (isinstance(size, int) and size < disk.size_mib):
            raise errors.OpPrereqError(
                f"disk {index} must be a new one of at least {disk.size_mib} MiB, as in the export",
                errors.ECODE_INVAL,
            )
        spec["size"] = size
    return tuple(disk.dump for disk in found.disks)


def _nic(
    unit: AnyUnit, op: OpInstanceCreate, found: export_description.Exported, nic: dict[str, str]
) -> dict[str, str]:
    """An interface as it was; a copy under another name needs an address of its own."""
    if op.instance_name != found.name:
        nic["mac"] = VALUE_AUTO
    network = nic.get("network")
    if network is not None:
        try:
            unit.config.expand_network(network)
        except errors.OpPrereqError:
            unit.warn(f"network {network} of the export is not known here and left out")
            del nic["network"]
    return nic


def _drop_defaults(op: OpInstanceCreate, cluster: Cluster, hypervisor: str) -> None:
    """What is the cluster's default anyway stays the cluster's."""

    def own(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if defaults.get(key, ...) != value}

    os_type = op.os_type or ""
    op.hvparams = own(op.hvparams, fill.fill_hv(cluster, hypervisor, os_type))
    op.beparams = own(op.beparams, fill.fill_be(cluster))
    op.osparams = own(op.osparams, fill.fill_osparams(cluster, os_type))
    for nic in op.nics:
        for key, value in fill.fill_nic(cluster).items():
            if nic.get(key) == value:
                del nic[key]


# -- from another cluster ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RemoteImport:
    """An instance in another cluster, which will send its disks."""

    ca_pem: str
    old_name: str
    timeout_s: int

    def run(self, unit: AnyUnit, instance: Instance, compress: str) -> None:
        """Listen for the disks, say where, and wait until all are there."""
        secret = handshake.domain_secret()
        primary = unit.config.node(instance.primary_node)
        name, certificate = unit.rpc.call(
            calls.X509_CERT_CREATE, primary.uuid, validity_s=handshake.CERT_VALIDITY_S
        ).payload()
        try:
            ends = [
                disk_copy.TransferEnd(
                    disk_copy.IMPORT,
                    primary,
                    instance,
                    f"disk/{index}",
                    (calls.SCRIPT, (disk, instance, index)),
                    ImportExportOptions(
                        key_name=name,
                        ca_pem=self.ca_pem,
                        compress=compress,
                        magic=disk_copy.new_magic(),
                        ipv6=disk_copy.uses_ipv6(unit),
                        connect_timeout=self.timeout_s,
                    ),
                )
                for index, disk in enumerate(unit.config.instance_disks(instance))
            ]
            waiting = set(ends)

            def listening(end: disk_copy.TransferEnd) -> list[disk_copy.TransferEnd]:
                waiting.discard(end)
                if not waiting:
                    _announce(unit, secret, primary, certificate, ends)
                return []

            disk_copy.run(unit, ends, on_listening=listening)
        finally:
            answer = unit.rpc.call(calls.X509_CERT_REMOVE, primary.uuid, name=name)
            if answer.failure is not None:
                unit.warn(f"key {name} stays on node {primary.name}: {why(answer.failure)}")
        _require_all(instance, [end.label for end in ends if not end.ok])
        _rename(unit, instance, self.old_name)

    def hook_env(self) -> dict[str, object]:
        """Nothing: the source is elsewhere."""
        return {}


def _announce(
    unit: AnyUnit, secret: str, node: Node, certificate: str, ends: list[disk_copy.TransferEnd]
) -> None:
    """Tell the third party, in the job's log, where the disks are awaited."""
    disks = []
    for index, end in enumerate(ends):
        assert end.status is not None
        port, magic = end.status.listen_port or 0, end.options.magic or ""
        disks.append(handshake.signed_disk(secret, index, node.primary_ip, port, magic))
    unit.ctx.callbacks.feedback(
        LOG_REMOTE_IMPORT,
        {
            "disks": disks,
            "x509_ca": signed.sign_certificate(secret, certificate, signed.new_salt()),
        },
    )


def _prepare_remote(unit: AnyUnit, op: OpInstanceCreate) -> RemoteImport:
    secret = handshake.domain_secret()
    if not op.source_handshake:
        raise errors.OpPrereqError(
            "an instance from another cluster needs the handshake of its cluster",
            errors.ECODE_INVAL,
        )
    handshake.check_greeting(secret, op.source_handshake)
    ca_pem = handshake.check_certificate(
        secret, op.source_x509_ca, "certificate of the other cluster"
    )
    if not op.source_instance_name:
        raise errors.OpPrereqError(
            "an instance from another cluster needs the name it has there", errors.ECODE_INVAL
        )
    if op.disk_template == DISKLESS or not op.disks:
        raise errors.OpPrereqError(
            "an instance without disks cannot be imported from another cluster; create it anew",
            errors.ECODE_INVAL,
        )
    # The other side stops the instance before it sends.
    timeout_s = disk_copy.REMOTE_CONNECT_S + op.source_shutdown_timeout
    return RemoteImport(ca_pem, op.source_instance_name, timeout_s)
