"""Opcodes for backups of instances."""

from __future__ import annotations

from ganeti import TYPE_CHECKING, ht
from ganeti.opcodes import params, types
from ganeti.opcodes.base import OpCode, opcode, param

if TYPE_CHECKING:
    from typing import Any


@opcode(summary="instance_name")
class OpBackupExport(OpCode):
    """Export an instance to a node or to another cluster.

    Result: [whether all succeeded, [for each disk whether it did]].
    """

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    compress: str = params.COMPRESS
    shutdown_timeout: int = params.SHUTDOWN_TIMEOUT
    target_node: str | list[Any] = param(
        types.ExportTarget,
        "Node name (mode local), or [host, port, magic, ...] for each disk (mode remote)",
    )
    target_node_uuid: str | None = param(
        types.MaybeString,
        "UUID of the target node; used instead of the name if given",
        default=None,
    )
    shutdown: bool = param(ht.Bool, "Shut the instance down before the export", default=True)
    remove_instance: bool = param(ht.Bool, "Remove the instance after the export", default=False)
    ignore_remove_failures: bool = params.IGNORE_REMOVE_FAILURES
    mode: str = param(
        types.ExportMode,
        "local for an export to a node, remote for one to another cluster",
        default="local",
    )
    x509_key_name: list[Any] | None = param(
        ht.Maybe(ht.List),
        "Name and signature of the key for the connection (mode remote)",
        default=None,
    )
    destination_x509_ca: str | None = param(
        types.MaybeString, "Certificate of the other cluster (mode remote)", default=None
    )
    zero_free_space: bool = param(
        ht.Bool, "Overwrite free space inside the disks before the export", default=False
    )
    zeroing_timeout_fixed: int | None = param(
        ht.Maybe(ht.Int),
        "Seconds which overwriting may take, independent of the size",
        default=None,
    )
    zeroing_timeout_per_mib: float | None = param(
        ht.Maybe(ht.Seconds),
        "Additional seconds which overwriting may take for each MiB",
        default=None,
    )
    long_sleep: bool = param(
        ht.Bool, "Allow that the instance is shut down during the whole export", default=False
    )
    RESULT = ht.Tuple(ht.Bool, ht.ListOf(ht.Bool))


@opcode(summary="instance_name")
class OpBackupPrepare(OpCode):
    """Prepare an export. Result: keys and signed data for another cluster, or None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    mode: str = param(
        types.ExportMode, "local for an export to a node, remote for one to another cluster"
    )
    RESULT = types.MaybeObject


@opcode(summary="instance_name")
class OpBackupRemove(OpCode):
    """Remove the backup of an instance from the nodes. Result: None."""

    instance_name: str = params.INSTANCE_NAME
    instance_uuid: str | None = params.INSTANCE_UUID
    RESULT = ht.NoneType
