"""Backups: export and import of instances."""

from __future__ import annotations

from ganeti import ht
from ganeti.opcodes import types
from ganeti.opcodes.base import OpCode, opcode, param

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@opcode(summary="instance_name")
class OpBackupExport(OpCode):
    """Export an instance to a node or to another cluster. Result: [all well, [per disk]]."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    compress: str = param(ht.Str, "Compression of the disk data on its way", default="none")
    shutdown_timeout: int = param(
        ht.NonNegInt, "Seconds the guest has to shut down before it is stopped", default=120
    )
    target_node: str | list[Any] = param(
        types.ExportTarget,
        "Node name (local mode), or one [host, port, magic] per disk (remote mode)",
    )
    target_node_uuid: str | None = param(
        types.MaybeString, "UUID of that node; filled in by the master", default=None
    )
    shutdown: bool = param(ht.Bool, "Shut the instance down before the export", default=True)
    remove_instance: bool = param(ht.Bool, "Remove the instance once it is exported", default=False)
    ignore_remove_failures: bool = param(
        ht.Bool, "Go on when parts of the instance cannot be removed", default=False
    )
    mode: str = param(
        types.ExportMode, "Where the export goes: to a node, or to another cluster", default="local"
    )
    x509_key_name: list[Any] | None = param(
        ht.Maybe(ht.List),
        "Name and signature of the key for the connection (remote mode)",
        default=None,
    )
    destination_x509_ca: str | None = param(
        types.MaybeString, "Certificate authority of the other cluster (remote mode)", default=None
    )
    zero_free_space: bool = param(
        ht.Bool, "Overwrite free space inside the disks before the export", default=False
    )
    zeroing_timeout_fixed: int | None = param(
        ht.Maybe(ht.Int), "Seconds that overwriting may take in any case", default=None
    )
    zeroing_timeout_per_mib: float | None = param(
        ht.Maybe(ht.Float), "Seconds it may take in addition, per MiB", default=None
    )
    long_sleep: bool = param(
        ht.Bool, "Allow the guest a long time between shutdown and export", default=False
    )
    RESULT = ht.Tuple(ht.Bool, ht.ListOf(ht.Bool))


@opcode(summary="instance_name")
class OpBackupPrepare(OpCode):
    """Prepare an export. Result: keys and a signed greeting for another cluster, or None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    mode: str = param(
        types.ExportMode, "Where the export will go: to a node, or to another cluster"
    )
    RESULT = types.MaybeObject


@opcode(summary="instance_name")
class OpBackupRemove(OpCode):
    """Remove the backup of an instance from the nodes. Result: None."""

    instance_name: str = param(ht.Str, "Instance")
    instance_uuid: str | None = param(
        types.MaybeString, "UUID of the instance; filled in by the master", default=None
    )
    RESULT = ht.NoneType
