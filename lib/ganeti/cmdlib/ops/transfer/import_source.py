"""Creating an instance from an export, or from an instance of another cluster.

The creation of an instance (:mod:`ganeti.cmdlib.ops.creation.unit`) uses this module. First
:func:`prepare` finds the export and completes the opcode with its parameters. Then, in place of
the installation of an OS, :meth:`ImportSource.run` fills the new disks.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ganeti import errors
from ganeti.cmdlib.base import Context, JobLog, LuContext, why
from ganeti.cmdlib.ops.params import new_instance
from ganeti.cmdlib.ops.transfer import disk_copy, export_description, handshake, seal, signed
from ganeti.cmdlib.ops.transfer.export_description import ExportedInstance
from ganeti.cmdlib.ops.transfer.exports import nodes_with_export
from ganeti.cmdlib.ops.transfer.keys import keys_of
from ganeti.constants.disk import DISKLESS
from ganeti.constants.instance import CREATE, IMPORT
from ganeti.constants.net import VALUE_AUTO
from ganeti.objects import description, fill
from ganeti.objects.transfer import ImportExportOptions
from ganeti.platform import paths
from ganeti.wire.calls import INSTANCE_RUN_RENAME
from ganeti.wire.calls import backup as calls

if TYPE_CHECKING:
    from ganeti.config import Config
    from ganeti.objects import Cluster, Instance, Node
    from ganeti.opcodes.instance import OpInstanceCreate
    from ganeti.rpc import RpcRunner

#: The type of the job log entry with the addresses of the imports, for the third party.
LOG_REMOTE_IMPORT = "remote-import"


class ImportUnknown(errors.OpExecError):
    """It is not known whether all disks arrived; the new instance must not be removed again."""


class ImportSource(Protocol):
    """The source of the content of the new disks.

    :cvar runs_scripts: the scripts of the OS definition write the content.
    :cvar ends_with_job: an instance whose content did not arrive before its job ended is of no use,
        and the watcher removes it.
    """

    runs_scripts: ClassVar[bool]
    ends_with_job: ClassVar[bool]

    def run(self, ctx: LuContext, instance: Instance, op: OpInstanceCreate) -> None:
        """Fill the disks of an instance, which are active on its primary node.

        :param op: asked for the instance; it names the compression tool of the transfer.
        :raises errors.OpExecError: the content of a disk did not arrive.
        :raises ImportUnknown: it may have arrived, and the source may have been removed after that.
        """

    def hook_env(self) -> dict[str, object]:
        """Hook variables about the source, without prefix."""


def prepare(ctx: Context, op: OpInstanceCreate) -> tuple[ImportSource | None, OpInstanceCreate]:
    """Find the source of an instance to be imported.

    :returns: the source, None when the instance is created without import; and the opcode with the
        parameters of the source where no others are given.
    :raises errors.OpPrereqError: there is no such export, or it contradicts the parameters.
    """
    if op.mode == CREATE:
        return None, op
    disk_copy.require_compression(ctx.config, op.compress)
    if op.no_install:
        ctx.log.info("the parameter no_install is ignored, because the disks are imported")
    # The variant was accepted when the exported instance was installed.
    op = op.replace(no_install=False, force_variant=True)
    return _prepare_local(ctx, op) if op.mode == IMPORT else (_prepare_remote(op), op)


# -- from an export in this cluster --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LocalImport:
    """An export on a node of this cluster.

    :ivar path: directory of the export on the node.
    :ivar old_name: name of the instance when it was exported.
    :ivar dumps: for each disk the name of the file with its content; None for a disk without.
    :ivar text: the description of the export.
    """

    node: Node
    path: str
    old_name: str
    dumps: tuple[str | None, ...]
    text: str
    runs_scripts: ClassVar[bool] = True
    ends_with_job: ClassVar[bool] = False

    def run(self, ctx: LuContext, instance: Instance, op: OpInstanceCreate) -> None:
        """Copy the files to the disks, and run the rename script of the OS if the name is new."""
        ctx.log.feedback("* running the instance OS import scripts...")
        primary = ctx.config.node(instance.primary_node)
        pairs = [
            disk_copy.pair(
                ctx.config,
                instance,
                index,
                source=(self.node, (calls.FILE, posixpath.join(self.path, dump))),
                target=(primary, (calls.SCRIPT, (disk, instance, index))),
                compress=op.compress,
            )
            for index, (disk, dump) in enumerate(
                zip(ctx.config.instance_disks(instance), self.dumps, strict=False)
            )
            if dump is not None
        ]
        arrived = disk_copy.copy_disks(ctx.rpc, ctx.log, pairs)
        _require_all(
            instance,
            [receiver.label for (receiver, _), ok in zip(pairs, arrived, strict=True) if not ok],
        )
        self._require_unchanged(ctx.rpc, instance)
        run_rename_script(ctx.rpc, ctx.log, instance, self.old_name, op.debug_level)

    def _require_unchanged(self, rpc: RpcRunner, instance: Instance) -> None:
        """Check that no other export took this one's place while its files were read.

        :raises errors.OpExecError: the disks may be of different exports.
        """
        answer = rpc.call(calls.EXPORT_INFO, self.node.uuid, path=self.path)
        if answer.failure is not None or answer.data != self.text:
            problem = "has changed" if answer.failure is None else why(answer.failure)
            raise errors.OpExecError(
                f"import of instance {instance.name} failed: the export {self.path} on node"
                f" {self.node.name} was replaced or removed meanwhile ({problem}). Repeat the"
                " command."
            )

    def hook_env(self) -> dict[str, object]:
        """Node, directory and files of the export."""
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


def run_rename_script(
    rpc: RpcRunner, log: JobLog, instance: Instance, old_name: str, debug_level: int | None
) -> None:
    """Run the rename script of the OS; a failure is a warning, because the disks are complete."""
    if not old_name or old_name == instance.name or not instance.os:
        return
    log.feedback(f"Running rename script for {instance.name}")
    answer = rpc.call(
        INSTANCE_RUN_RENAME,
        instance.primary_node,
        instance=instance,
        old_name=old_name,
        debug_level=debug_level or 0,
    )
    if answer.failure is not None:
        log.warn(
            f"the rename script of instance {instance.name} failed, so its disks still have the"
            f" name {old_name}: {why(answer.failure)}"
        )


def _prepare_local(ctx: Context, op: OpInstanceCreate) -> tuple[LocalImport, OpInstanceCreate]:
    node, path = _find(ctx.config, ctx.rpc, op)
    answer = ctx.rpc.call(calls.EXPORT_INFO, node.uuid, path=path)
    if answer.failure is not None:
        raise errors.OpPrereqError(
            f"export {path} on node {node.name} cannot be used: {why(answer.failure)}",
            errors.ECODE_ENVIRON,
        ) from answer.failure
    found = export_description.parse(answer.data, ctx.log.warn)
    # An export of another instance with its seal must not take the place of this one.
    own = posixpath.basename(path) == found.name and seal.is_own(
        ctx.config.cluster().export_key, found
    )
    found = _taken(ctx, op, found, f"export {path} on node {node.name}", own=own)
    op = _completed_op(ctx.config, ctx.log, op, found)
    dumps = tuple(disk.dump for disk in found.disks) if op.disk_template != DISKLESS else ()
    return LocalImport(node, path, found.name, dumps, answer.data), op


def _find(config: Config, rpc: RpcRunner, op: OpInstanceCreate) -> tuple[Node, str]:
    """Find the node with the export, and the path of the export there."""
    everywhere = paths.Paths().export_dir
    path = op.src_path or op.instance_name
    absolute = posixpath.join(everywhere, path)
    if op.src_node_uuid or op.src_node:
        node = config.expand_node(op.src_node_uuid or op.src_node or "")
        if node.offline:
            raise errors.OpPrereqError(
                f"node {node.name}, which has the export, is marked offline", errors.ECODE_STATE
            )
        return node, absolute
    if posixpath.isabs(path):
        raise errors.OpPrereqError(
            "an export which is named by an absolute path needs its node, too. Use --src-node.",
            errors.ECODE_INVAL,
        )
    having, unresponsive = nodes_with_export(config, rpc, path)
    if not having:
        hint = f" Nodes without an answer: {', '.join(unresponsive)}." if unresponsive else ""
        raise errors.OpPrereqError(
            f"no node has an export {path!r}. See 'gnt-backup list'.{hint}", errors.ECODE_INVAL
        )
    return config.node(having[0]), absolute


def _taken(
    ctx: Context, op: OpInstanceCreate, found: ExportedInstance, source: str, *, own: bool
) -> ExportedInstance:
    """Return what is taken from the description of an export.

    :param source: the export, for people.
    :param own: whether the description is as this cluster has written it.
    :raises errors.OpPrereqError: it names things of nodes, and they are not accepted.
    """
    cluster = ctx.config.cluster()
    enabled = found.hypervisor in cluster.enabled_hypervisors
    nics = tuple(_with_known_network(ctx.config, ctx.log, dict(nic)) for nic in found.nics)
    described = description.Described(
        source=source,
        hypervisor=found.hypervisor,
        hvparams=found.hvparams,
        os=found.os,
        osparams=found.osparams,
        osparams_private=found.osparams_private,
        nics=nics,
        tags=found.tags,
    )
    given = description.Given(
        hypervisor=op.hypervisor or (None if enabled else cluster.primary_hypervisor),
        hvparams=op.hvparams.keys(),
        os=op.os_type,
        osparams={*op.osparams, *(op.osparams_private or ()), *(op.osparams_secret or ())},
        nics=bool(op.nics),
        tags=bool(op.tags),
        accepted=op.accept_from_description or (),
    )
    if own:
        description.require_names(given.accepted)
        taken = description.all_of(described, given)
    else:
        taken = description.taken(described, given, cluster, cluster.primary_hypervisor)
        description.require(f"{source} is not as this cluster has written it. It", taken.refused)
    for note in description.accepted_notes(taken):
        ctx.log.info(note)
    return replace(
        found,
        hvparams=taken.hvparams,
        os=taken.os,
        osparams=taken.osparams,
        osparams_private=taken.osparams_private,
        nics=taken.nics,
        tags=taken.tags,
    )


def _with_known_network(config: Config, log: JobLog, nic: dict[str, str]) -> dict[str, str]:
    network = nic.get("network")
    if network is not None:
        try:
            config.expand_network(network)
        except errors.OpPrereqError:
            log.warn(
                f"network {network} of the export does not exist in this cluster, so it is ignored"
            )
            del nic["network"]
    return nic


def _completed_op(
    config: Config, log: JobLog, op: OpInstanceCreate, found: ExportedInstance
) -> OpInstanceCreate:
    """Return the opcode with the parameters of the export where no others are given."""
    cluster = config.cluster()
    op = new_instance.completed_op(op, found)
    op = op.replace(disk_template=op.disk_template or found.disk_template)
    op = op.replace(disks=_disk_specs(op, found))
    if op.hypervisor is None and found.hypervisor in cluster.enabled_hypervisors:
        op = op.replace(hypervisor=found.hypervisor)
    hypervisor = op.hypervisor or cluster.enabled_hypervisors[0]
    if hypervisor == found.hypervisor:
        op = op.replace(hvparams={**found.hvparams, **op.hvparams})
    elif found.hypervisor is not None:
        log.info(
            f"the hypervisor parameters of the export are ignored, because they are for"
            f" {found.hypervisor} and not for {hypervisor}"
        )
    if not op.nics:
        # An instance with a new name gets new MAC addresses.
        own = {} if op.instance_name == found.name else {"mac": VALUE_AUTO}
        op = op.replace(nics=[{**nic, **own} for nic in found.nics])
    return _without_defaults(op, cluster, hypervisor) if op.identify_defaults else op


def _disk_specs(op: OpInstanceCreate, found: ExportedInstance) -> list[dict[str, Any]]:
    """Return the specs of disks which can take the content of those of the export."""
    if op.disk_template == DISKLESS:
        if any(disk.dump for disk in found.disks):
            raise errors.OpPrereqError(
                f"the export of {found.name} has {len(found.disks)} disks, so the instance cannot"
                " be diskless",
                errors.ECODE_INVAL,
            )
        return op.disks
    if not op.disks:
        return [
            {"size": disk.size_mib, **({"name": disk.name} if disk.name else {})}
            for disk in found.disks
        ]
    if len(op.disks) < len(found.disks):
        raise errors.OpPrereqError(
            f"the export of {found.name} has {len(found.disks)} disks, but the instance would have"
            f" only {len(op.disks)}",
            errors.ECODE_INVAL,
        )
    specs = [dict(spec) for spec in op.disks]
    for index, (spec, disk) in enumerate(zip(specs, found.disks, strict=False)):
        size = spec.setdefault("size", disk.size_mib)
        if spec.get("adopt") or (isinstance(size, int) and size < disk.size_mib):
            raise errors.OpPrereqError(
                f"disk {index} must be a new disk of at least {disk.size_mib} MiB, its size in the"
                " export",
                errors.ECODE_INVAL,
            )
    return specs


def _without_defaults(op: OpInstanceCreate, cluster: Cluster, hypervisor: str) -> OpInstanceCreate:
    """Return the opcode without the parameters which have the values of the cluster's defaults."""

    def own(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in values.items() if defaults.get(key, ...) != value}

    os_type = op.os_type or ""
    return op.replace(
        hvparams=own(op.hvparams, fill.fill_hv(cluster, hypervisor, os_type)),
        beparams=own(op.beparams, fill.fill_be(cluster)),
        osparams=own(op.osparams, fill.fill_osparams(cluster, os_type)),
        nics=[own(nic, fill.fill_nic(cluster)) for nic in op.nics],
    )


# -- from another cluster ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RemoteImport:
    """An instance of another cluster, which will send its disks.

    :ivar ca_pem: certificate of the other cluster.
    :ivar old_name: name of the instance in the other cluster.
    :ivar timeout_s: how long the imports wait for the other cluster to connect.
    """

    ca_pem: str
    old_name: str
    timeout_s: int
    runs_scripts: ClassVar[bool] = True
    ends_with_job: ClassVar[bool] = True

    def run(self, ctx: LuContext, instance: Instance, op: OpInstanceCreate) -> None:
        """Start the imports, publish their addresses in the job log, and wait until all end."""
        secret = handshake.domain_secret()
        primary = ctx.config.node(instance.primary_node)
        with keys_of(ctx.rpc, ctx.log, [primary], handshake.CERT_VALIDITY_S) as keys:
            key = keys[primary.uuid]
            ends = [
                disk_copy.TransferEnd(
                    disk_copy.IMPORT,
                    primary,
                    instance,
                    f"disk/{index}",
                    (calls.SCRIPT, (disk, instance, index)),
                    ImportExportOptions(
                        key_name=key.name,
                        ca_pem=self.ca_pem,
                        compress=op.compress,
                        magic=disk_copy.new_magic(),
                        ipv6=disk_copy.uses_ipv6(ctx.config),
                        connect_timeout=self.timeout_s,
                    ),
                )
                for index, disk in enumerate(ctx.config.instance_disks(instance))
            ]
            waiting = set(ends)

            def listening(end: disk_copy.TransferEnd) -> list[disk_copy.TransferEnd]:
                waiting.discard(end)
                if not waiting:
                    _announce(ctx, secret, primary, key.certificate, ends)
                return []

            disk_copy.run(ctx.rpc, ctx.log, ends, on_listening=listening)
        failed = [end for end in ends if not end.ok]
        if failed and all(end.unknown for end in failed):
            # One end which is known to have failed would have kept the source from its removal.
            raise ImportUnknown(
                f"it is not known whether {', '.join(end.label for end in failed)} of instance"
                f" {instance.name} arrived. The new instance stays, stopped, because the other"
                f" cluster may have removed {self.old_name} after it had sent everything. If it is"
                " still there, remove the new one with 'gnt-instance remove'. Otherwise the new one"
                " is complete."
            )
        _require_all(instance, [end.label for end in failed])
        run_rename_script(ctx.rpc, ctx.log, instance, self.old_name, op.debug_level)

    def hook_env(self) -> dict[str, object]:
        """No variables, because the source is in another cluster."""
        return {}


def _announce(
    ctx: LuContext, secret: str, node: Node, certificate: str, ends: list[disk_copy.TransferEnd]
) -> None:
    """Write the signed addresses of the imports to the job log, for the third party."""
    disks = []
    for index, end in enumerate(ends):
        assert end.status is not None
        port, magic = end.status.listen_port or 0, end.options.magic or ""
        disks.append(handshake.signed_disk(secret, index, node.primary_ip, port, magic))
    ctx.callbacks.feedback(
        LOG_REMOTE_IMPORT,
        {
            "disks": disks,
            "x509_ca": signed.sign_certificate(secret, certificate, signed.new_salt()),
        },
    )


def _prepare_remote(op: OpInstanceCreate) -> RemoteImport:
    secret = handshake.domain_secret()
    if not op.source_handshake:
        raise errors.OpPrereqError(
            "an import from another cluster needs the handshake of that cluster",
            errors.ECODE_INVAL,
        )
    handshake.check_greeting(secret, op.source_handshake)
    ca_pem = handshake.check_certificate(
        secret, op.source_x509_ca, "certificate of the other cluster"
    )
    if not op.source_instance_name:
        raise errors.OpPrereqError(
            "an import from another cluster needs the name of the instance there",
            errors.ECODE_INVAL,
        )
    if op.disk_template == DISKLESS or not op.disks:
        raise errors.OpPrereqError(
            "an instance without disks cannot be imported from another cluster. Create it here.",
            errors.ECODE_INVAL,
        )
    # The other cluster stops the instance before it sends the disks.
    timeout_s = disk_copy.REMOTE_CONNECT_S + op.source_shutdown_timeout
    return RemoteImport(ca_pem, op.source_instance_name, timeout_s)
