"""What an opcode may leave when its job is ended in the middle, and the command which cleans up.

``doc/design-instance-changes.rst`` explains why each of these commands is sufficient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: Id of an opcode -> what to do, with the parameters of the opcode in braces.
_CLEAN_UP: Final = {
    "OP_INSTANCE_COPY": "the copy may be incomplete: 'gnt-instance remove {new_name}', or the"
    " watcher removes it a day later",
    "OP_INSTANCE_CREATE": "the instance may be incomplete: 'gnt-instance remove {instance_name}'",
    "OP_INSTANCE_REMOVE": "the instance may be partly removed:"
    " 'gnt-instance remove {instance_name}' again",
    "OP_INSTANCE_MIGRATE": "the guest may be on either node:"
    " 'gnt-instance migrate --cleanup {instance_name}'",
    "OP_INSTANCE_FAILOVER": "the instance may be stopped: 'gnt-instance failover {instance_name}'"
    " again",
    "OP_INSTANCE_MOVE": "copies of its disks may be left, which the next move or"
    " 'gnt-instance remove' destroys: 'gnt-instance move {instance_name}' again",
    "OP_INSTANCE_RECREATE_DISKS": "disks may be incomplete:"
    " 'gnt-instance recreate-disks {instance_name}' again",
    "OP_INSTANCE_REPLACE_DISKS": "a mirror may be incomplete:"
    " 'gnt-instance replace-disks {instance_name}' again",
    "OP_INSTANCE_GROW_DISK": "replicas may differ in size: 'gnt-instance grow-disk {instance_name}'"
    " again",
    "OP_INSTANCE_REINSTALL": "its disks may have no complete system:"
    " 'gnt-instance reinstall {instance_name}' again",
    "OP_INSTANCE_SET_PARAMS": "disks may be incomplete: 'gnt-instance modify {instance_name}' with"
    " the same options again",
    "OP_INSTANCE_RENAME": "its files may have either name: 'gnt-instance rename {instance_name}'"
    " again",
    "OP_INSTANCE_STARTUP": "its disks may be active: 'gnt-instance startup {instance_name}' again,"
    " or 'gnt-instance shutdown {instance_name}'",
    "OP_INSTANCE_SHUTDOWN": "the guest may still run: 'gnt-instance shutdown {instance_name}'"
    " again",
    "OP_INSTANCE_REBOOT": "the guest may be stopped: 'gnt-instance startup {instance_name}'",
    "OP_INSTANCE_ACTIVATE_DISKS": "disks may be active: 'gnt-instance deactivate-disks"
    " {instance_name}'",
    "OP_INSTANCE_DEACTIVATE_DISKS": "disks may be active: 'gnt-instance deactivate-disks"
    " {instance_name}' again",
    "OP_BACKUP_EXPORT": "snapshots, a partial export or a stopped guest may be left:"
    " 'gnt-backup export' again, and 'gnt-instance startup {instance_name}' if it should run",
    "OP_BACKUP_REMOVE": "a part of the export may be left: 'gnt-backup remove {instance_name}'"
    " again",
    "OP_NODE_ADD": "the node may not be a complete member: 'gnt-node add --readd {node_name}'",
    "OP_NODE_REMOVE": "the node may still have files of the cluster: 'gnt-node remove {node_name}'"
    " again, or 'node-cleanup' there",
    "OP_NODE_SET_PARAMS": "the node may have another role than the configuration says:"
    " 'gnt-node modify {node_name}' with the same options again",
    "OP_CLUSTER_RENEW_CRYPTO": "nodes may have different certificates: 'gnt-cluster renew-crypto'"
    " again",
    "OP_CLUSTER_SET_PARAMS": "nodes may not have heard of the change: 'gnt-cluster redist-conf'",
    "OP_CLUSTER_RENAME": "the address of the master may be inactive: 'gnt-cluster rename' again",
}
_UNKNOWN: Final = "'gnt-cluster verify' shows what does not fit"


class _Parameters(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return key.removesuffix("_name").upper()


def advice(op: Mapping[str, Any]) -> str:
    """Return what an interrupted opcode may have left, as a part of a message.

    :param op: the parameters of the opcode, with ``OP_ID``.
    """
    text = _CLEAN_UP.get(str(op.get("OP_ID")), _UNKNOWN)
    known = {key: value for key, value in op.items() if isinstance(value, str) and value}
    return text.format_map(_Parameters(known))


def opcodes() -> frozenset[str]:
    """Return the ids of the opcodes which have an entry."""
    return frozenset(_CLEAN_UP)
